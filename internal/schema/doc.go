// Package schema knows what the objects of a Kubernetes resource look like: which fields they have,
// of which types.
//
// Its part in the flow: before anything runs, package expr checks expressions against these types,
// and while the router runs it reads the fields of objects by them. The types come from an OpenAPI
// v3 document of an API server ([Parse]), or from the set of the built-in resources that is part of
// the binary ([Builtin]), which was made from such documents by `make generate`, or from a set that
// `router schema pull` has saved ([Load]).
package schema
