package event

import "github.com/deltarouter/deltarouter/internal/rawjson"

// AsBare returns a copy of o that says that the rest of the object is not known, because the disk
// has only its identity. recall returns the JSON text of the whole object, by the identity and a
// later state of the same object: with the values that are equal in both, and placeholders, never
// absence, for values that are not known. unknown: none of the values is known.
func (o *Object) AsBare(recall func(identity, now rawjson.Value) string, unknown bool) *Object {
	bare := *o
	if bare.apart == nil {
		bare.setApart()
	}
	bare.apart = &identity{bare.apart.fields, recall, unknown}
	return &bare
}

// IsBare reports whether [Object.AsBare] made the object.
func (o *Object) IsBare() bool { return o.apart != nil && o.apart.recall != nil }

// IsUnknown reports whether the object is bare, and none of its values is known.
func (o *Object) IsUnknown() bool { return o.apart != nil && o.apart.unknown }

// Recalled returns o, or, if it is bare, the whole object, made from the data on disk and now, a
// later state of it.
func (o *Object) Recalled(now *Object) *Object {
	if !o.IsBare() || now.IsBare() || o.UID() != now.UID() {
		return o
	}
	whole, err := ParseObject(o.resource, o.apart.recall(o.Raw(), now.Raw()))
	if err != nil {
		return o // it has a name
	}
	return whole
}
