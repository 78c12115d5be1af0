package routertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// binary is the path of the router built for this run.
var binary string

// Main is the TestMain of a package that starts routers: it builds the router, runs the tests, and
// stops their shared sandbox.
func Main(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deltarouter-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "router")
	// The flags of the Makefile, to share its cache.
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", binary, "../../cmd/router")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the router: %v\n%s", err, out)
		return 1
	}
	return sandboxtest.Wrap(m).Run()
}

// Command returns a command of the built router. The caller runs it.
func Command(args ...string) *exec.Cmd { return exec.Command(binary, args...) }

// Guest builds an example plugin and returns the path of the module.
func Guest(t *testing.T, name string) string {
	t.Helper()
	module := filepath.Join(t.TempDir(), name+".wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", module, ".")
	build.Dir = filepath.Join("..", "..", "examples", "plugins", name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	return module
}
