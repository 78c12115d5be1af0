package process_test

import "testing"

// TestSealed: even the plugin cannot change the program of its next start.
func TestSealed(t *testing.T) {
	// Guarantee: programs-pinned
	b := newBench(t)
	b.open("")
	contains(t, b.handle("rewrite")[0], "ok [false,false]")
	contains(t, b.handle("crash")[0], "fail ")
	contains(t, b.handle("a")[0], "ok ")
	b.close()
}
