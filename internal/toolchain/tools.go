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

// what names the program and its missing part.
func (t tool) what() string {
	if t.part == "" {
		return t.program()
	}
	return t.program() + " with " + t.part
}

func (t tool) there(ctx context.Context) bool {
	path, err := exec.LookPath(t.program())
	return err == nil && (t.works == nil || t.works(ctx, path))
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
