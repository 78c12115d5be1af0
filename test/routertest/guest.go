package routertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

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
