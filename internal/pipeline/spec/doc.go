// Package spec has what a route is configured to do: which deltas it wants, what it makes of them,
// and where it delivers them. A Config evaluates the filter and the keys of a route for a delta,
// and has its metrics. It has no state.
package spec
