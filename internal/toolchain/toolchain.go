// Package toolchain builds a handler: it recognises the language of the source in a folder, finds
// the tools of that language on this machine, and runs them. The result is a WebAssembly module in
// the same folder. `router plugin build` uses it.
package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrNothing is the error of a folder whose handler needs no build.
var ErrNothing = errors.New("JavaScript is not built: router check reports its mistakes")

// Build is the build of the handler in a folder.
type Build struct {
	Language string // Go, Rust, C, AssemblyScript; empty: a build.sh of another language
	Module   string // the path of the module that the build writes

	dir   string
	tools []tool
	steps []step
	// made is the file that the steps write if it is not Module, relative to dir.
	made string
}

// step is a command with its additional environment.
type step struct {
	env  []string
	args []string
	skip func(dir string) bool // nil: never
}

func (s step) String() string { return strings.Join(append(slices.Clone(s.env), s.args...), " ") }

// Find returns the build of the folder dir. It looks for build.sh, go.mod, package.json and
// Cargo.toml, in this order. The error wraps [ErrNothing] if the source is JavaScript.
func Find(dir string) (*Build, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, fileerr.Cause(err))
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return nil, fmt.Errorf("folder %s cannot be read: %w", dir, fileerr.Cause(err))
	}
	has := func(pattern string) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			ok, _ := filepath.Match(pattern, e.Name())
			return ok && !e.IsDir()
		})
	}
	name := filepath.Base(full)
	b := &Build{dir: full, Module: filepath.Join(dir, name+".wasm")}
	switch {
	case has("build.sh"):
		b.script(has)
	case has("go.mod"):
		b.golang(name)
	case has("package.json"):
		b.assemblyscript()
	case has("Cargo.toml"):
		b.cargo(name)
	case has("*.js"), has("*.mjs"):
		return nil, ErrNothing
	default:
		return nil, fmt.Errorf("folder %s has no source of a handler: none of build.sh, go.mod, package.json, Cargo.toml and *.js is there "+
			"(router plugin new writes a handler that builds)", dir)
	}
	return b, nil
}

// script runs build.sh, as router plugin new writes it for C and Rust.
func (b *Build) script(has func(pattern string) bool) {
	b.tools = []tool{shell}
	switch {
	case has("*.rs"):
		b.Language, b.tools = "Rust", append(b.tools, rustc)
	case has("*.c"):
		b.Language, b.tools = "C", append(b.tools, clang, wasmLD)
	}
	b.steps = []step{{args: []string{"sh", "build.sh"}}}
}

func (b *Build) golang(name string) {
	b.Language, b.tools = "Go", []tool{golang}
	b.steps = []step{{
		env:  []string{"GOOS=wasip1", "GOARCH=wasm"},
		args: []string{"go", "build", "-buildmode=c-shared", "-o", name + ".wasm", "."},
	}}
}

func (b *Build) assemblyscript() {
	b.Language, b.tools = "AssemblyScript", []tool{node, npm}
	installed := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "node_modules"))
		return err == nil
	}
	b.steps = []step{
		{args: []string{"npm", "install", "--no-audit", "--no-fund"}, skip: installed},
		{args: []string{"npm", "run", "build"}},
	}
}

func (b *Build) cargo(name string) {
	const target = "wasm32-unknown-unknown"
	b.Language, b.tools = "Rust", []tool{cargo, rustc}
	b.steps = []step{{args: []string{"cargo", "build", "--release", "--target", target}}}
	b.made = filepath.Join("target", target, "release", strings.ReplaceAll(name, "-", "_")+".wasm")
}

// Run checks the tools, runs the commands, and checks that they wrote a module. The commands are
// named in out, to which they also write. Their environment is that of this process.
func (b *Build) Run(ctx context.Context, out io.Writer) error {
	if err := b.missing(ctx); err != nil {
		return err
	}
	var chosen []string
	for _, t := range b.tools {
		if one := t.chosen(ctx); one != "" {
			chosen = append(chosen, one)
		}
	}
	for _, s := range b.steps {
		if s.skip != nil && s.skip(b.dir) {
			continue
		}
		s.env = append(slices.Clone(s.env), chosen...)
		fmt.Fprintf(out, "%s\n", s)
		c := exec.CommandContext(ctx, s.args[0], s.args[1:]...) //nolint:gosec // the user asked for the build of this folder
		c.Dir, c.Env, c.Stdout, c.Stderr = b.dir, append(os.Environ(), s.env...), out, out
		c.WaitDelay = time.Second // for a grandchild that keeps the output open
		if err := c.Run(); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s failed in %s: %w; its output is above", s, b.dir, err)
		}
	}
	return b.finish()
}

// missing returns an error that names all tools that are not installed, and how to install them.
func (b *Build) missing(ctx context.Context) error {
	var lines []string
	for _, t := range b.tools {
		if !t.there(ctx) {
			lines = append(lines, t.what()+" ("+t.install+")")
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("the build of %s needs programs that are not installed: %s", b.dir, strings.Join(lines, "; "))
}

// magic is the begin of a module of WebAssembly 1; components have another version.
const magic = "\x00asm\x01\x00\x00\x00"

// finish copies the module to its place, if the build wrote it elsewhere, and checks its first
// bytes.
func (b *Build) finish() error {
	at := filepath.Join(b.dir, filepath.Base(b.Module))
	if b.made != "" {
		module, err := os.ReadFile(filepath.Join(b.dir, b.made))
		if err != nil {
			return fmt.Errorf("the build did not write %s: %w; name the crate like its folder, with the crate-type cdylib", b.made, fileerr.Cause(err))
		}
		if err := os.WriteFile(at, module, 0o644); err != nil { //nolint:gosec // a module is no secret
			return fmt.Errorf("%s cannot be written: %w", b.Module, fileerr.Cause(err))
		}
	}
	begin, err := readBegin(at)
	switch {
	case err != nil:
		return fmt.Errorf("the build did not write %s: %w; let it write the module there", b.Module, fileerr.Cause(err))
	case begin != magic:
		return fmt.Errorf("%s is not a module of WebAssembly 1: build for wasm32-unknown-unknown, wasm32-wasip1 or GOOS=wasip1", b.Module)
	}
	return nil
}

func readBegin(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	begin := make([]byte, len(magic))
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	return string(begin[:n]), nil
}
