// Package built compiles the programs that tests run: guests for WebAssembly, native plugins,
// servers. A program is compiled once for its content and kept in the cache folder of the user,
// where the tests of other packages, runs and clones of the repository find it. Test binaries that
// run at the same time take turns.
package built

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Program is a main package and how it is compiled. GOFLAGS of the environment does not count, and
// nothing of the version control gets into the program: the same sources make the same program.
type Program struct {
	Dir     string   // where the go command runs
	Package string   // or a file; default: the package in Dir
	Flags   []string // of go build
	Env     []string // in addition to the environment
}

// Module compiles the Go guest in dir as a reactor for WASI preview 1, as `make build` does, and
// returns the path of the module.
func Module(tb testing.TB, dir string) string {
	tb.Helper()
	return module(tb, dir, "-buildmode=c-shared")
}

// Command compiles the Go guest in dir as a command for WASI preview 1, and returns the path of the
// module.
func Command(tb testing.TB, dir string) string {
	tb.Helper()
	return module(tb, dir)
}

func module(tb testing.TB, dir string, flags ...string) string {
	tb.Helper()
	return Program{Dir: dir, Flags: append(flags, "-ldflags=-s -w"), Env: []string{"GOOS=wasip1", "GOARCH=wasm"}}.File(tb)
}

// Native compiles the program in dir for this machine, without cgo, and returns its path.
func Native(tb testing.TB, dir string) string {
	tb.Helper()
	return Program{Dir: dir, Flags: []string{"-ldflags=-s -w"}}.File(tb)
}

// File compiles the program if that was not done before, and returns its path, whose last element
// is the name that `go build` gives. The file stays for hours, and must not be changed. It ends the
// test if the program cannot be compiled.
func (p Program) File(tb testing.TB) string {
	tb.Helper()
	file, err := p.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// Build is [Program.File] for a TestMain.
func (p Program) Build() (string, error) {
	made.Lock()
	defer made.Unlock()
	id := fmt.Sprintf("%q", p)
	if file := made.files[id]; file != "" {
		return file, nil
	}
	root, err := folder("programs")
	if err != nil {
		return "", err
	}
	file, err := p.buildIn(root)
	if err == nil {
		made.files[id] = file
	}
	return file, err
}

// made has the files of this process, whose sources do not change during its tests.
var made = struct {
	sync.Mutex

	files map[string]string
}{files: make(map[string]string)}

// Code returns a folder for compiled modules: the Cache of [plugins.Env]. All tests share it, so
// that each module is compiled to machine code once.
//
// [plugins.Env]: https://pkg.go.dev/github.com/deltarouter/deltarouter/pkg/plugins#Env
func Code(tb testing.TB) string {
	tb.Helper()
	dir, err := code()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

var code = sync.OnceValues(func() (string, error) {
	dir, err := folder("code")
	prune(filepath.Join(dir, "wasm"), time.Now())
	return dir, err
})

// folder returns a folder of this package in the cache folder of the user. It is outside of the
// repository: the go command would not keep the result of a test that opened it.
func folder(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "deltarouter-tests", name)
	return dir, os.MkdirAll(dir, 0o700)
}

func (p Program) buildIn(root string) (string, error) {
	s, err := p.sources()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, s.key)
	file := filepath.Join(dir, s.name)
	unlock, err := lock(root)
	if err != nil {
		return "", err
	}
	defer unlock()
	now := time.Now()
	// The time of its last use keeps the entry from being removed.
	if err := os.Chtimes(dir, now, now); !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	prune(root, now)
	temporary, err := os.MkdirTemp(root, "new-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if _, err := p.run("build", "-buildvcs=false", "-o", filepath.Join(temporary, s.name)); err != nil {
		return "", err
	}
	return file, os.Rename(temporary, dir)
}

// run runs a command of the go command on the package.
func (p Program) run(command string, args ...string) ([]byte, error) {
	args = append([]string{command}, args...)
	if command != "env" {
		args = append(args, p.Flags...)
		args = append(args, "-trimpath", "--", p.pkg())
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOOS=", "GOARCH=")
	cmd.Env = append(cmd.Env, p.Env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), p.Dir, err, said.String())
	}
	return out, nil
}

func (p Program) pkg() string {
	if p.Package == "" {
		return "."
	}
	return p.Package
}

// lock waits until no other process builds in the folder.
func lock(root string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(root, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil // which drops the lock
}

// keptFor is how long an entry stays after its last use: longer than a run of the tests.
const keptFor = 24 * time.Hour

// keptBytes is the size up to which unused entries stay, too.
const keptBytes = 1 << 30

// sum returns the SHA-256 in hexadecimal.
func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}
