//go:build !race

package effort

// Race reports whether the race detector is on. With it, code takes about ten times as long.
const Race = false
