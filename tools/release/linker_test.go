package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoReflectedMethods checks that the linker leaves out the methods that nothing calls. It keeps
// every exported method of the program, 9 MB, as soon as any function that can be reached looks up
// methods by a name that is computed, as the templates of Go do.
func TestNoReflectedMethods(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags,
		"-ldflags", "-s -w -dumpdep", "-o", filepath.Join(t.TempDir(), "router"), "./cmd/router")
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	output, err := cmd.StderrPipe()
	succeed(t, err)
	succeed(t, cmd.Start())
	edges, causes, last := 0, 0, ""
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		last = scanner.Text()
		if !strings.Contains(last, " -> ") {
			continue
		}
		edges++
		if strings.Contains(last, "<ReflectMethod>") && causes < 5 {
			causes++
			t.Errorf("the linker keeps all exported methods: %s", last)
		}
	}
	succeed(t, scanner.Err())
	if err := cmd.Wait(); err != nil || edges < 1000 {
		t.Errorf("the linker printed %d edges of its graph, and at the end %q: %v", edges, last, err)
	}
}
