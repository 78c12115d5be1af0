// Package expr compiles and evaluates CEL over the JSON text of objects.
//
// Its part in the flow: a route's filter, emit and key and a source's indexes are expressions. An
// [Env] holds what all of them may use; [Env.Compile] turns the text of one into a [Program] once;
// every delta is then evaluated against it. Nothing is unmarshalled: a field is read out of the
// object's text at the moment that the expression asks for it, and what an emit passes on unchanged
// is copied as text, so integers keep all their digits.
//
// An expression sees `object` (the state after the change, for a delete the last state, never
// null), `oldObject` (the state before, null for an added object), `op`, `source`, `cluster`, the
// expressions of `define` by their names, the standard library, the Kubernetes CEL libraries (those
// of its API server, without authorization checks) and these functions:
//
//	changed(path)                 whether the values at the literal path, which may have [*], differ between oldObject and object. Added:
//	                              whether it exists in object. Deleted, deselected and sync: false. Updated where the source keeps no
//	                              old states: whether it exists in object. Values are compared, not text: the order of keys and 1
//	                              against 1.0 make no difference, an absent field and null do
//	diff(old, new)                what differs between two objects, or the same part of two: [{path, old, new}]
//	lookup(index, value)          the objects that the index "source.index" (or "index" of the route's own source) has under value
//	count(index, value)           how many those are
//	get(source, namespace, name)  one object, or null; namespace "" for a cluster-scoped one
//	list(source)                  all objects of a source, by namespace and name
//	controller(object)            the owner that controls it, and that one's, as far as the cache reaches, or null:
//	                              {apiVersion, kind, namespace, name, uid, object}
//	managers(object)              its metadata.managedFields: [{manager, operation, apiVersion, time, subresource, fields}]
//	sha256(text)                  the sum of a text, or of bytes, in hexadecimal digits
//
// Where the schema of a source is known, `object`, `oldObject` and what lookup, get and list find
// have its type: expressions are checked against it, and values are read as it says (docs/CEL.md
// has the table). null in a field of such an object is an absent field.
//
// How other JSON becomes CEL: a number without fraction and exponent is an int, beyond 64 bits
// signed a uint, beyond that a double; any other number is a double. Maps are iterated in the order
// of the text. All else is as CEL defines it for JSON.
//
// From a text to a result: package check parses it and checks its types, with the defines that
// stand beside it; package resolve links them to one tree for the place of use; package cost
// estimates the tree and wraps what has to be counted; a [Program] evaluates it over the values of
// package jsonval, with the functions of package builtin.
//
// Two limits hold for each evaluation: CEL's cost, and the bytes of JSON read, so that a small
// expression over a huge object is bounded too. Both end in [ErrCost].
package expr
