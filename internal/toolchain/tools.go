package toolchain

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// tool is a program that a build runs.
type tool struct {
	name    string
	env     string // a variable that names another program in its place; may be empty
	install string
	// works reports whether an installed program can build; nil: it can.
	works func(ctx context.Context, program string) bool
	part  string // the missing part if works returns false
}

const rustTarget = "wasm32-unknown-unknown"

var (
	shell  = tool{name: "sh", install: "it is a part of each Unix; on Windows use WSL"}
	golang = tool{name: "go", install: "https://go.dev/dl, version 1.26 or later"}
	clang  = tool{name: "clang", env: "CLANG", install: "apt-get install clang lld, brew install llvm lld"}
	wasmLD = tool{name: "wasm-ld", install: "apt-get install lld, brew install lld"}
	node   = tool{name: "node", install: "https://nodejs.org, version 20 or later"}
	npm    = tool{name: "npm", install: "it comes with Node: https://nodejs.org"}
	cargo  = tool{name: "cargo", install: "https://rustup.rs, or apt-get install cargo"}
	rustc  = tool{
		name: "rustc", env: "RUSTC", works: hasRustTarget, part: "its target " + rustTarget,
		install: "rustup target add " + rustTarget + ", or apt-get install rustc libstd-rust-dev-wasm32",
	}
)

// program returns the name of the program: that of the environment, or the usual one.
func (t tool) program() string {
	if t.env == "" {
		return t.name
	}
	return cmp.Or(os.Getenv(t.env), t.name)
}

// what names the program and its missing part, and the installed program that lacks it.
func (t tool) what() string {
	if t.part == "" {
		return t.program()
	}
	text := t.program() + " with " + t.part
	if path, err := exec.LookPath(t.program()); err == nil {
		text += ", which " + path + " lacks"
	}
	return text
}

// there reports whether the program is installed and can build.
func (t tool) there(ctx context.Context) bool {
	_, ok := t.find(ctx)
	return ok
}

// find returns the first program of the PATH that can build. A program that the environment names
// is the only candidate.
func (t tool) find(ctx context.Context) (path string, ok bool) {
	first, err := exec.LookPath(t.program())
	if err != nil || t.works == nil || t.works(ctx, first) {
		return first, err == nil
	}
	if t.program() != t.name {
		return "", false
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := exec.LookPath(filepath.Join(dir, t.name))
		if err == nil && path != first && t.works(ctx, path) {
			return path, true
		}
	}
	return "", false
}

// chosen returns the variable that makes the build run another program than the first of the PATH,
// which cannot build, or "": the first one can. So rustup's compiler without the target does not
// hide the one of the system that has it.
func (t tool) chosen(ctx context.Context) string {
	if t.works == nil || t.env == "" {
		return ""
	}
	first, err := exec.LookPath(t.program())
	if path, ok := t.find(ctx); ok && err == nil && path != first {
		return t.env + "=" + path
	}
	return ""
}

// hasRustTarget reports whether the standard library for WebAssembly is installed.
func hasRustTarget(ctx context.Context, rustc string) bool {
	root, err := exec.CommandContext(ctx, rustc, "--print", "sysroot").Output() //nolint:gosec // the compiler that the build runs
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(string(bytes.TrimSpace(root)), "lib", "rustlib", rustTarget))
	return err == nil
}
