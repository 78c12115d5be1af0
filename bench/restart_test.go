package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRestart shows that the comparison works, and that the restart lists nothing. Only make bench
// measures times.
func TestRestart(t *testing.T) {
	router := filepath.Join(t.TempDir(), "router")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "..", "-trimpath", "-tags", "grpcnotrace", "-o", router, "./cmd/router")
	// the flags of the Makefile, to share its cache
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the router: %v\n%s", err, out)
	}
	if err := restarts(router, "", 100, 0, 1); err != nil {
		t.Fatal(err)
	}
}
