package routertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/built"
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

// Guest returns the path of the module of an example plugin.
func Guest(t *testing.T, name string) string {
	t.Helper()
	return built.Module(t, filepath.Join("..", "..", "examples", "plugins", name))
}
