package routertest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// binary is the path of the router built for this run.
var binary string

// Main is the TestMain of a package that starts routers: it builds the router, runs the tests, and
// stops their shared sandbox.
func Main(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	root, err := filepath.Abs("../..")
	if err == nil {
		binary, err = build(root)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "building the router: %v\n", err)
		return 1
	}
	effort.Waiting(6) // each test has routers of its own
	return sandboxtest.Wrap(m).Run()
}

// build builds bin/tests/router, which all packages share: the go command leaves it as it is if
// nothing has changed, and replaces it otherwise, so that a running router keeps its file. Packages
// that are tested at the same time build one after another.
func build(root string) (file string, err error) {
	dir := filepath.Join(root, "bin", "tests")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".router.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // drops the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	file = filepath.Join(dir, "router")
	// The flags of the Makefile, to share its cache.
	command := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", file, "./cmd/router")
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return file, nil
}

// Command returns a command of the built router. The caller runs it.
func Command(args ...string) *exec.Cmd {
	noteSources()
	return exec.Command(binary, args...)
}

// noteSources opens the folders of the router's sources, once. The go command records the
// files that a test opens, of a folder the times and sizes in it, and runs the test again after
// their change: no test imports the router.
var noteSources = sync.OnceFunc(func() {
	root := filepath.Join(filepath.Dir(binary), "..", "..")
	for _, sources := range []string{"go.mod", "cmd/router", "internal", "pkg", "sdk/proto"} {
		_ = filepath.WalkDir(filepath.Join(root, sources), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() && sources != "go.mod" {
				return err
			}
			folder, err := os.Open(path)
			if err == nil {
				_ = folder.Close()
			}
			return err
		})
	}
})

// Guest returns the path of the module of an example plugin.
func Guest(t *testing.T, name string) string {
	t.Helper()
	return built.Module(t, filepath.Join("..", "..", "examples", "plugins", name))
}
