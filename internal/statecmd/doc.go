// Package statecmd is the command `router state`: it shows, exports and copies the state and the
// history of a router. It reads them outside of a router, and shows them in figures and as lines of
// JSON.
package statecmd
