// Package index stores the objects of a watch and finds them by the values of CEL expressions.
//
// The informer puts each object into the [Store] of its watch, under the watch's cut lock. Filters
// and handlers query the [Catalog], which joins the stores of a source under the names of the
// configuration. The store is client-go's Indexer. Its IndexFuncs are CEL expressions and never
// fail, because client-go panics on an error of an IndexFunc: if an expression fails on an object,
// the object is not indexed, and deltarouter_source_index_errors_total counts the failure.
//
// An object that has not changed for some time is compressed, see the type resting.
//
// Index values are evaluated once per object, before the store is locked, and kept beside the
// object. The built-in indexes name, namespace and owner are built at their first use.
package index
