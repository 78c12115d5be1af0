package toolchain

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// folder writes empty files into a new folder with the name of a handler.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pod-phase")
	must.Succeed(t, os.Mkdir(dir, 0o755))
	for _, name := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	return dir
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		files           []string
		language, steps string
	}{
		{[]string{"go.mod", "main.go"}, "Go", "GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o pod-phase.wasm ."},
		{[]string{"build.sh", "pod-phase.c"}, "C", "sh build.sh"},
		{[]string{"build.sh", "Cargo.toml", "pod-phase.rs"}, "Rust", "sh build.sh"},
		{[]string{"build.sh", "pod-phase.zig"}, "", "sh build.sh"},
		{[]string{"Cargo.toml"}, "Rust", "cargo build --release --target wasm32-unknown-unknown"},
		{[]string{"package.json", "pod-phase.ts"}, "AssemblyScript", "npm install --no-audit --no-fund; npm run build"},
	} {
		t.Run(strings.Join(c.files, " "), func(t *testing.T) {
			dir := folder(t, c.files...)
			b, err := Find(dir)
			must.Succeed(t, err)
			var steps []string
			for _, s := range b.steps {
				steps = append(steps, s.String())
			}
			if got := strings.Join(steps, "; "); b.Language != c.language || got != c.steps || b.Module != filepath.Join(dir, "pod-phase.wasm") {
				t.Errorf("%s: %s writes %s", b.Language, got, b.Module)
			}
		})
	}
}

func TestFindMistakes(t *testing.T) {
	if _, err := Find(folder(t, "pod-phase.js", "config.yaml")); !errors.Is(err, ErrNothing) {
		t.Error(err)
	}
	_, err := Find(folder(t, "config.yaml"))
	must.Fail(t, err, "has no source of a handler: none of build.sh, go.mod")
	_, err = Find(filepath.Join(t.TempDir(), "none"))
	must.Fail(t, err, "cannot be read: there is no such file or folder")
}

// script returns a build whose build.sh has the given text.
func script(t *testing.T, text string) *Build {
	t.Helper()
	dir := folder(t)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "build.sh"), []byte(text), 0o600))
	b, err := Find(dir)
	must.Succeed(t, err)
	return b
}

func TestRun(t *testing.T) {
	for _, c := range []struct{ name, script, err string }{
		{"a module", `printf '\0asm\1\0\0\0' >pod-phase.wasm`, ""},
		{"no module", `true`, "the build did not write"},
		{"a component", `printf '\0asm\15\0\1\0' >pod-phase.wasm`, "is not a module of WebAssembly 1: build for"},
		{"an empty file", `: >pod-phase.wasm`, "is not a module of WebAssembly 1"},
		{"a failure", `echo error: line 3; exit 7`, "sh build.sh failed in "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := script(t, c.script).Run(t.Context(), &out)
			if c.err == "" {
				must.Succeed(t, err)
			} else {
				must.Fail(t, err, c.err)
			}
			if !strings.HasPrefix(out.String(), "sh build.sh\n") {
				t.Errorf("the output is %q", out.String())
			}
			if c.name == "a failure" && !strings.Contains(out.String(), "error: line 3") {
				t.Errorf("the output of the command is missing: %q", out.String())
			}
		})
	}
}

// TestMissing: the error names all programs that are not installed and how to install them.
func TestMissing(t *testing.T) {
	dir := folder(t, "build.sh", "pod-phase.c")
	b, err := Find(dir)
	must.Succeed(t, err)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CLANG", "clang-99")
	err = b.Run(t.Context(), &bytes.Buffer{})
	must.Fail(t, err, "sh (it is a part of each Unix")
	must.Fail(t, err, "clang-99 (apt-get install clang lld, brew install llvm lld); ")
	must.Fail(t, err, "wasm-ld (apt-get install lld")
}

// TestRustTarget: a compiler without the target is not enough.
func TestRustTarget(t *testing.T) {
	bin, root := t.TempDir(), t.TempDir()
	text := "#!/bin/sh\necho " + root + "\n"
	must.Succeed(t, os.WriteFile(filepath.Join(bin, "rustc-x"), []byte(text), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("RUSTC", "rustc-x")
	if rustc.there(t.Context()) {
		t.Error("the target is found, which is not there")
	}
	if got := rustc.what(); got != "rustc-x with its target wasm32-unknown-unknown, which "+filepath.Join(bin, "rustc-x")+" lacks" {
		t.Error(got)
	}
	must.Succeed(t, os.MkdirAll(filepath.Join(root, "lib", "rustlib", rustTarget), 0o755))
	if !rustc.there(t.Context()) {
		t.Error("the target is not found")
	}
}

// TestSecondRustc: a compiler without the target, as rustup's is at first, does not hide a later
// one of the PATH that has it. One that the environment names is the only candidate.
func TestSecondRustc(t *testing.T) {
	without, with, root := t.TempDir(), t.TempDir(), t.TempDir()
	must.Succeed(t, os.MkdirAll(filepath.Join(root, "lib", "rustlib", rustTarget), 0o755))
	for bin, sysroot := range map[string]string{without: t.TempDir(), with: root} {
		must.Succeed(t, os.WriteFile(filepath.Join(bin, "rustc"), []byte("#!/bin/sh\necho "+sysroot+"\n"), 0o700)) //nolint:gosec // a program
	}
	t.Setenv("PATH", strings.Join([]string{without, with, os.Getenv("PATH")}, string(os.PathListSeparator)))
	t.Setenv("RUSTC", "")
	dir := folder(t, "pod-phase.rs")
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "build.sh"), []byte(`printf '\0asm\1\0\0\0' >pod-phase.wasm; echo "with $RUSTC"`), 0o600))
	b, err := Find(dir)
	must.Succeed(t, err)
	var out bytes.Buffer
	must.Succeed(t, b.Run(t.Context(), &out))
	second := filepath.Join(with, "rustc")
	if got, want := out.String(), "RUSTC="+second+" sh build.sh\nwith "+second+"\n"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	t.Setenv("RUSTC", filepath.Join(without, "rustc"))
	must.Fail(t, b.Run(t.Context(), &out), "rustc with its target wasm32-unknown-unknown, which "+filepath.Join(without, "rustc")+" lacks (rustup target add")
}

// TestCargo: the module of a crate is copied beside its source.
func TestCargo(t *testing.T) {
	dir := folder(t, "Cargo.toml")
	b, err := Find(dir)
	must.Succeed(t, err)
	must.Fail(t, b.finish(), "name the crate like its folder, with the crate-type cdylib")
	made := filepath.Join(dir, "target", rustTarget, "release")
	must.Succeed(t, os.MkdirAll(made, 0o755))
	must.Succeed(t, os.WriteFile(filepath.Join(made, "pod_phase.wasm"), []byte(magic), 0o600))
	must.Succeed(t, b.finish())
	if _, err := os.Stat(b.Module); err != nil {
		t.Error(err)
	}
}

// TestStop: a build ends with the command.
func TestStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := script(t, "true")
	cancel()
	if err := b.Run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
