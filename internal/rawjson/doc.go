// Package rawjson reads JSON where it lies: nothing is unmarshalled, no map is built, a value is a
// piece of the text it came from.
//
// Its part in the flow: an object of the cluster stays the text that the API server sent. The
// informer checks that text once ([Check], [Scan]) and cuts pieces out of it, [event.ParseObject]
// reads the identity, and CEL reads single fields ([Value.Get]). What was checked once is trusted
// afterwards, so the methods of [Value] skip quickly and report no errors.
//
// Everything works on strings, because a Go string cannot be changed by anybody: a key or a value
// can be handed on without a copy.
package rawjson
