package event

// Past has the fingerprints of a state of an object, which the disk has beside the identity. It is
// safe for concurrent use.
type Past interface {
	// Recall returns the JSON text of the whole object, by the identity and a later state of the
	// same object: with the values that are equal in both, and placeholders, never absence, for
	// values that are not known.
	Recall(identity, now Value) string
	// IsUnknown reports whether none of the values is known.
	IsUnknown() bool
}

// AsBare returns a copy of o that says that the rest of the object is not known, because the disk
// has only its identity and past.
func (o *Object) AsBare(past Past) *Object {
	bare := *o
	if bare.apart == nil {
		bare.setApart()
	}
	bare.apart = &identity{fields: bare.apart.fields, past: past}
	return &bare
}

// Past returns the argument of [Object.AsBare]; nil: it did not make the object.
func (o *Object) Past() Past {
	if o.apart == nil {
		return nil
	}
	return o.apart.past
}

// IsBare reports whether [Object.AsBare] made the object.
func (o *Object) IsBare() bool { return o.Past() != nil }

// IsUnknown reports whether the object is bare, and none of its values is known.
func (o *Object) IsUnknown() bool { return o.IsBare() && o.Past().IsUnknown() }

// Recalled returns o, or, if it is bare, the whole object, made from the data on disk and now, a
// later state of it.
func (o *Object) Recalled(now *Object) *Object {
	if !o.IsBare() || now.IsBare() || o.UID() != now.UID() {
		return o
	}
	whole, err := ParseObject(o.resource, o.Past().Recall(o.Raw(), now.Raw()))
	if err != nil {
		return o // it has a name
	}
	return whole
}

// LacksNew reports whether New is bare, and no later state stands for it, see [Delta.StandIn].
func (d *Delta) LacksNew() bool { return d.New != nil && d.New.IsBare() && d.New.apart.later == nil }

// StandIn returns a copy of d whose New is bare, and for which now stands, a whole later state of
// the object, when the delta is [Delta.Recalled]. The copy keeps the identity of New, and so the
// IDs of its events. It returns d if now is no such state.
func (d *Delta) StandIn(now *Object) *Delta {
	if !d.LacksNew() || now == nil || now.IsBare() || now.UID() != d.New.UID() {
		return d
	}
	bare, with := *d.New, *d
	apart := *bare.apart
	apart.later = now
	bare.apart, with.New = &apart, &bare
	return &with
}

// Recalled returns d, or, if a later state stands for New, a copy with that state as New, and with
// an Old that is [Object.Recalled] from it.
func (d *Delta) Recalled() *Delta {
	if d.New == nil || !d.New.IsBare() || d.New.apart.later == nil {
		return d
	}
	whole := *d
	whole.New = d.New.apart.later
	if d.Old != nil {
		whole.Old = d.Old.Recalled(whole.New)
	}
	return &whole
}
