// Package archive shows the content of a state file outside of a router: in figures, and as lines
// of JSON.
package archive
