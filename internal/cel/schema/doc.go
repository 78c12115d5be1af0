// Package schema has the types of Kubernetes resources: the fields of their objects and the types
// of these fields.
//
// Package expr checks expressions against these types before anything runs, and uses them to read
// the fields of objects at run time. The types come from an OpenAPI v3 document of an API server
// ([Parse]), from the set of built-in resources in the binary ([Builtin]), which `make generate`
// made from such documents, or from a set that `router schema pull` has saved ([Load]).
package schema
