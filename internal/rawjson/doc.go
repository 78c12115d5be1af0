// Package rawjson reads JSON in place: it unmarshals nothing and builds no map. A value is a part
// of its text.
//
// An object of the cluster stays the text that the API server sent. The informer checks that text
// once ([Check], [Scan]) and cuts parts out of it, [event.ParseObject] reads the identity, and CEL
// reads single fields ([Value.Get]). Checked text is trusted afterwards, so the methods of [Value]
// skip quickly and return no errors.
//
// All functions use strings: a Go string is immutable, so keys and values are passed on without a
// copy.
package rawjson
