// Package scripts tests the shell scripts of tools/ that users run through make.
package scripts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

const root = "../.."

const (
	example = "examples/plugins/label-audit"
	module  = "label-audit.wasm"
)

// TestBrokenToolchain shows that a C compiler that fails does not fail the build of the plugins.
// The build reports it in one line and uses the committed module instead.
func TestBrokenToolchain(t *testing.T) {
	dir := checkout(t)
	clang := fakeClang(t, "echo 'fatal error: no such instruction' >&2; exit 1")

	out := guests(t, dir, clang, "plugins", example)

	if n := strings.Count(strings.TrimSpace(out), "\n"); n != 0 {
		t.Errorf("the build printed %d lines, want one:\n%s", n+1, out)
	}
	for _, want := range []string{"SKIPPED", module, "clang 99.0.0 failed", "no such instruction", "checked in"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	sameAsCheckedIn(t, dir)
}

// TestNoOtherToolchain shows that the target of `make run` calls no compiler but Go's.
func TestNoOtherToolchain(t *testing.T) {
	dir := checkout(t)
	called := filepath.Join(t.TempDir(), "called")

	guests(t, dir, fakeClang(t, "touch "+called), "go-only", example)

	if _, err := os.Stat(called); err == nil {
		t.Error("clang was called")
	}
	sameAsCheckedIn(t, dir)
}

// TestNoOptimizer shows that clang never gets -O in a command that links, because its driver would
// then run the wasm-opt of the path on the result. Some versions of wasm-opt reject clang's output.
func TestNoOptimizer(t *testing.T) {
	dir := checkout(t)
	log := filepath.Join(t.TempDir(), "log")

	guests(t, dir, fakeClang(t, `echo "$*" >>`+log+`; while [ "$1" != -o ]; do shift; done; : >"$2"`), "plugins", example)

	commands, err := os.ReadFile(log)
	must.Succeed(t, err)
	for command := range strings.Lines(string(commands)) {
		compiles := strings.Contains(command, " -c ")
		if optimizes := strings.Contains(command, "-O"); optimizes != compiles {
			t.Errorf("optimizes: %v, compiles without linking: %v: %s", optimizes, compiles, command)
		}
	}
}

// checkout copies the parts of the tree that tools/guests.sh needs for one example.
func checkout(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, part := range []string{"sdk/c", example} {
		must.Succeed(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))))
	}
	script, err := os.ReadFile(filepath.Join(root, "tools", "guests.sh"))
	must.Succeed(t, err)
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "tools"), 0o700))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tools", "guests.sh"), script, 0o600))
	return dir
}

// fakeClang writes a compiler that passes the script's probe, reports a version, and runs body to
// compile.
func fakeClang(t *testing.T, body string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "clang")
	script := "#!/bin/sh\ncase \"$*\" in\n*--version*) echo 'clang version 99.0.0'; exit ;;\n*probe.wasm*) exit ;;\nesac\n" + body + "\n"
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return file
}

func guests(t *testing.T, dir, clang string, args ...string) (out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, "tools", "guests.sh")}, args...)...)
	cmd.Env = append(os.Environ(), "CLANG="+clang)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("guests.sh %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

func sameAsCheckedIn(t *testing.T, dir string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(root, example, module))
	must.Succeed(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "bin/plugins", module))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("bin/plugins/%s is not the module that is checked in (%v)", module, err)
	}
}
