package wasm_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if guests.dir != "" {
			_ = os.RemoveAll(guests.dir)
		}
		os.Exit(code)
	}))
}

// guests are the built modules, by the folder of their source.
var guests struct {
	mu    sync.Mutex
	dir   string
	built map[string]string
}

// build builds a guest in Go, once for all tests, and returns its file.
func build(t testing.TB, source string) string {
	t.Helper()
	guests.mu.Lock()
	defer guests.mu.Unlock()
	if file, ok := guests.built[source]; ok {
		return file
	}
	if guests.dir == "" {
		dir, err := os.MkdirTemp("", "guests-*") //nolint:usetesting // it outlives this test
		must.Succeed(t, err)
		guests.dir, guests.built = dir, map[string]string{}
	}
	// go test caches a result until a file that the test has opened changes.
	for _, dir := range []string{source, "../../../sdk/go"} {
		if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	// two folders may have the same name
	file := filepath.Join(guests.dir, fmt.Sprint(len(guests.built), "-", filepath.Base(source), ".wasm"))
	// the flags of `make build`, to share the build cache
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", file, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, out)
	}
	guests.built[source] = file
	return file
}
