// Package index keeps the objects of a watch and finds them by what CEL expressions say about them.
//
// Its part in the flow: the informer puts each object into the [Store] of its watch, under the
// watch's cut lock; filters and handlers ask the [Catalog], which joins the stores of a source
// under the names that the configuration gives. The store is client-go's Indexer. Its IndexFuncs
// are CEL expressions and never fail (client-go panics on an IndexFunc error): an expression that
// fails on an object indexes nothing there and is counted in deltarouter_source_index_errors_total.
//
// Index values are evaluated once per object, before the store is locked, and kept beside it. The
// built-in indexes name, namespace and owner cost nothing until they are first asked for.
package index
