// Package spec contains the specification of a route: the deltas that it takes, its handler, and
// its targets. A Config evaluates the filter and the keys of a route for a delta, and has its
// metrics. It has no state.
package spec
