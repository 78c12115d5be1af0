// Package statecmd is the command `router state`: it shows, exports and copies the state of a
// router. It reads a state file outside of a router, and shows it in figures and as lines of JSON.
package statecmd
