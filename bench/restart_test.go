package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRestart: the comparison itself works, and the restart lists nothing. How long it takes is for
// make bench to say.
func TestRestart(t *testing.T) {
	router := filepath.Join(t.TempDir(), "router")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-trimpath", "-o", router, "./cmd/router")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as the Makefile, to share its cache
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the router: %v\n%s", err, out)
	}
	if err := restarts(router, "", 100, 0, 1); err != nil {
		t.Fatal(err)
	}
}
