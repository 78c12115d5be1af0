// Package e2e runs the router's binary on the sandbox's real API server, the way a user does: a configuration file, objects that
// change, and what comes out on standard output.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// binary is the path of the router that was built for this run.
var binary string //nolint:gochecknoglobals // set once, in TestMain

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deltarouter-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "router")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../../cmd/router") // as the Makefile, to share its cache
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the router: %v\n%s", err, out)
		return 1
	}
	return sandboxtest.Wrap(m).Run()
}
