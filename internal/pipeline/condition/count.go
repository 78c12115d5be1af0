package condition

// Counts are figures for the metrics.
type Counts struct {
	// objects for which a condition holds and For is not over, and held deletes
	Waiting int
	Active  int // other objects for which a condition holds
	Keys    int // keys of the limit

	Suppressed int // edges that the limit held back since the last call
	Forgotten  int // keys that the limit evicted since the last call
	Refused    int // observations since the last call for whose objects there was no room
}

// Count returns the present figures, and the counts since the last call.
func (r *Rules) Count() (n Counts) {
	if states := r.Conditions.states; states != nil {
		n.Waiting, n.Active = states.Counts()
		n.Suppressed, n.Refused = states.TakeHeld(), states.TakeRefused()
	}
	if r.Holds.On() {
		n.Waiting += r.Holds.Len()
	}
	if keys := r.Limit.keys; keys != nil {
		n.Keys, n.Forgotten = keys.Len(), keys.TakeForgotten()
	}
	return n
}
