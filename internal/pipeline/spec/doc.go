// Package spec contains the settings of a route: the deltas that it takes, its handler, and its
// targets. They evaluate the filter and the keys of the route for a delta, and have its metrics.
// They have no state.
package spec
