package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

// TestRestart shows that the comparison works, and that the restart lists nothing. Only make bench
// measures times.
func TestRestart(t *testing.T) {
	if err := restarts(report.New(t.Output(), ""), buildRouter(t), "", 100, 0, 1); err != nil {
		t.Fatal(err)
	}
}

// TestFootprint shows that the manifests of the chart can be installed, and that the router gets
// ready with each kind of cache. The image has its own test.
func TestFootprint(t *testing.T) {
	router := buildRouter(t)
	sandbox, err := filepath.Abs("../../bin/sandbox")
	if err != nil {
		t.Fatal(err)
	}
	if err := installations(t.Context(), router, sandbox, t.TempDir(), 1); err != nil {
		t.Error(err)
	}
	for _, cache := range caches {
		if err := cacheMemory(t.Context(), router, t.TempDir(), cache, 100); err != nil {
			t.Errorf("cache: %s: %v", cache, err)
		}
	}
}

func buildRouter(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "router")
	// The flags of the Makefile, to share its cache.
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-trimpath", "-tags", "grpcnotrace", "-o", file, "./cmd/router")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the router: %v\n%s", err, out)
	}
	return file
}
