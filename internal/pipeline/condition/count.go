package condition

// Counts are figures for the metrics.
type Counts struct {
	// objects for which a condition holds and For is not over, and deletes that are held
	Waiting int
	Active  int // other objects for which a condition holds
	Keys    int // keys that the limit knows

	Suppressed int // edges that the limit held back since the last call
	Forgotten  int // keys that the limit forgot since the last call, for want of room
}

// Count returns the figures of now, and of the time since the last call.
func (r *Rules) Count() (n Counts) {
	if states := r.Conditions.states; states != nil {
		n.Waiting, n.Active = states.Counts()
		n.Suppressed = states.TakeHeld()
	}
	if r.Holds.On() {
		n.Waiting += r.Holds.Len()
	}
	if keys := r.Limit.keys; keys != nil {
		n.Keys, n.Forgotten = keys.Len(), keys.TakeForgotten()
	}
	return n
}
