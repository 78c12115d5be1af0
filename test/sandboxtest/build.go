package sandboxtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binaryVariable names another binary than bin/sandbox, of another version of Kubernetes, as
// `make e2e KUBERNETES=oldest` does.
const binaryVariable = "SANDBOX"

// ensureBinary returns the path of bin/sandbox. It builds the binary if it is missing or older than
// its sources; test binaries that run at the same time build it once.
func ensureBinary() (string, error) {
	if bin := os.Getenv(binaryVariable); bin != "" {
		return bin, nil
	}
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	binDir, sources := filepath.Join(root, "bin"), filepath.Join(root, "tools", "sandbox")
	if err := os.MkdirAll(binDir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(binDir, ".sandbox.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // drops the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	bin := filepath.Join(binDir, "sandbox")
	stale, err := isStale(bin, sources)
	if err != nil || !stale {
		return bin, err
	}
	return bin, build(bin, sources)
}

// Binary returns the path of bin/sandbox, for a test that starts it by itself.
func Binary(tb testing.TB) string {
	tb.Helper()
	bin, err := ensureBinary()
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	return bin
}

func build(bin, sources string) error {
	fmt.Fprintf(os.Stderr, "sandboxtest: building %s; the first build takes minutes\n", bin)
	// The flags of the Makefile: other flags would replace its build cache.
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, ".")
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build -C %s: %w\n%s", sources, err, out)
	}
	// go build leaves the file unchanged if only the times of the sources differ.
	now := time.Now()
	return os.Chtimes(bin, now, now)
}

// isStale reports whether a source is newer than the binary.
func isStale(bin, sources string) (bool, error) {
	built, err := os.Stat(bin)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	entries, err := os.ReadDir(sources)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !isSource(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return false, err
		}
		if info.ModTime().After(built.ModTime()) {
			return true, nil
		}
	}
	return false, nil
}

func isSource(name string) bool {
	if name == "go.mod" || name == "go.sum" {
		return true
	}
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// repoRoot finds the repository above the folder of the test.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "tools", "sandbox", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no tools/sandbox/go.mod above the working folder")
		}
		dir = parent
	}
}
