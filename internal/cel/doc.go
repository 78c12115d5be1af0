// Package cel compiles and evaluates CEL over the JSON text of objects.
//
// A route's filter, emit and key and a source's indexes are expressions. An [Env] holds the shared
// parts of all expressions; [Env.Compile] compiles the text of one into a [Program], which is then
// evaluated for every delta. Objects are not unmarshalled: a field is read from the object's text
// when the expression uses it, and a value that an emit passes on unchanged is copied as text, so
// integers keep all their digits.
//
// An expression sees `object` (the state after the change, for a delete the last state, never
// null), `oldObject` (the state before, null for an added object), `op`, `source`, `cluster`, the
// expressions of `define` by their names, the standard library, the Kubernetes CEL libraries (those
// of its API server, without authorization checks) and these functions:
//
//	changed(path)
//	    whether the values at the literal path, which may have [*], differ between oldObject and
//	    object. Values are compared, not texts: the order of keys and 1 against 1.0 are no
//	    difference, and a field with null is an absent one. Added, and updated if the source
//	    keeps no old states: whether the path exists in object. Deleted, deselected and sync: false.
//	diff(old, new)
//	    the differences between two objects, or the same part of two: [{path, old, new}]
//	lookup(index, value)
//	    the objects that the index "source.index" has under value; "index" alone is one of the
//	    route's own source
//	count(index, value)
//	    the number of these objects
//	get(source, namespace, name)
//	    one object, or null; namespace "" for a cluster-scoped one
//	list(source)
//	    all objects of a source, by namespace and name
//	controller(object)
//	    the end of the chain of its controllers, as far as the cache has them, or null:
//	    {apiVersion, kind, namespace, name, uid, object}
//	managers(object)
//	    its metadata.managedFields: [{manager, operation, apiVersion, time, subresource, fields}]
//	sha256(text)
//	    the sum of a text, or of bytes, in hexadecimal digits
//
// If the schema of a source is known, `object`, `oldObject` and the objects that lookup, get and
// list find have its type: expressions are checked against it, and values are read accordingly
// (docs/CEL.md has the table).
//
// null in a field of an object, or at a key of a map, is an absent one, with and without a schema.
// Elements of lists, and the data of events, may be null.
//
// Conversion of other JSON to CEL: a number without fraction and exponent is an int, beyond 64 bits
// signed a uint, beyond that a double; any other number is a double. Maps are iterated in the order
// of the text. Everything else is as CEL defines it for JSON.
//
// From a text to a result: package check parses it, checks its types, together with the defines,
// and links them to one tree for the place of use; package cost estimates the tree and
// wraps the parts that have to be counted; a [Program] evaluates it over the values of package
// jsonval, with the functions of package builtin.
//
// Each evaluation has two limits, CEL's cost and the bytes of JSON read, so that a small expression
// over a huge object is bounded too. Both end in [ErrCost].
package cel
