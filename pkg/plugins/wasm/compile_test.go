package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// cached returns the files of machine code in a cache, and their modification times.
func cached(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	files := map[string]time.Time{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "sha256" {
			return err
		}
		info, err := d.Info()
		files[path] = info.ModTime()
		return err
	})
	must.Succeed(t, err)
	return files
}

// TestCompiledOnce opens a handler several times with a cache that is damaged in between.
func TestCompiledOnce(t *testing.T) {
	// Guarantee: compiled-private
	dir := filepath.Join(t.TempDir(), "cache")
	conf := moduleYAML(t, guest(constant(opI64, 2)))
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	// open opens the handler, and reports whether the file of machine code was written again.
	open := func(t *testing.T) (written bool) {
		t.Helper()
		for file := range cached(t, dir) {
			must.Succeed(t, os.Chtimes(file, long, long))
		}
		h := newHost()
		h.env.Cache = dir
		if got := verdicts(handle(t, h.open(t, conf), plugintest.Deltas(t)[:1])); got != "drop" {
			t.Errorf("got %s", got)
		}
		files := cached(t, dir)
		if len(files) != 2 { // the module and the pause function
			t.Fatalf("there are %d files", len(files))
		}
		for _, at := range files {
			written = written || !at.Equal(long)
		}
		return written
	}
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	if !open(t) || open(t) {
		t.Fatal("the second time what the first compiled was not used")
	}
	edit := func(f func(data []byte) []byte) func(t *testing.T) {
		return func(t *testing.T) {
			for file := range cached(t, dir) {
				data, err := os.ReadFile(file)
				if err == nil {
					err = os.WriteFile(file, f(data), 0o600)
				}
				must.Succeed(t, err)
			}
		}
	}
	for name, harm := range map[string]func(t *testing.T){
		"a bit":           edit(func(data []byte) []byte { data[len(data)/2] ^= 4; return data }),
		"the first bytes": edit(func(data []byte) []byte { clear(data[:8]); return data }),
		"the end":         edit(func(data []byte) []byte { return data[:len(data)-3] }),
		"nothing left":    edit(func([]byte) []byte { return nil }),
		"no seal": func(t *testing.T) {
			seals, err := filepath.Glob(filepath.Join(dir, "wasm", "*", "sha256"))
			if err != nil || len(seals) != 1 || os.Remove(seals[0]) != nil {
				t.Fatal(seals, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			harm(t)
			if !open(t) {
				t.Error("what is damaged was used")
			}
			if open(t) {
				t.Error("what was compiled anew was not used")
			}
		})
	}
}

// TestNoCache: a handler works without a usable cache.
func TestNoCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	h := newHost()
	h.env.Cache = file
	if got := verdicts(handle(t, h.open(t, moduleYAML(t, guest(constant(opI64, 2)))), plugintest.Deltas(t)[:1])); got != "drop" {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(h.log.String(), "each start compiles them") {
		t.Errorf("the log does not say so: %s", h.log)
	}
}

// TestCompileCanceled: the compilation of a module ends with its context.
func TestCompileCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	node := plugintest.Node(t, moduleYAML(t, guest(constant(opI64, 2))))
	if handler, err := wasm.Kind().Open(ctx, node, newHost().env); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
		if err == nil {
			_ = handler.Close(t.Context())
		}
	}
}

// TestCompileLogged: the log has the begin of a long compilation, and nothing if the compiled
// module is there.
func TestCompileLogged(t *testing.T) {
	m := guest(constant(opI64, 2))
	m.data = map[uint32][]byte{0x8000: bytes.Repeat([]byte("x"), 600<<10)}
	conf, dir := moduleYAML(t, m), t.TempDir()
	for _, want := range []bool{true, false} {
		h := newHost()
		h.env.Cache = dir
		h.open(t, conf)
		for _, line := range []string{"compiling the module, which may take seconds", "compiled the module"} {
			if strings.Contains(h.log.String(), line) != want {
				t.Errorf("%q is in the log: %v\n%s", line, !want, h.log)
			}
		}
	}
}

// TestCompiledTogether: without a cache on disk, a module is compiled once for all handlers of it
// that are open, such as those of several teams, and its code is freed after the last of them.
func TestCompiledTogether(t *testing.T) {
	m := guest(constant(opI64, 2))
	m.data = map[uint32][]byte{0x8000: bytes.Repeat([]byte("y"), 600<<10)} // long enough for the log
	conf := plugintest.Node(t, moduleYAML(t, m))
	open := func(compiles bool) plugins.Handler {
		t.Helper()
		h := newHost()
		handler, err := wasm.Kind().Open(t.Context(), conf, h.env)
		must.Succeed(t, err)
		if strings.Contains(h.log.String(), "compiled the module") != compiles {
			t.Errorf("it was compiled: %v\n%s", !compiles, h.log)
		}
		return handler
	}
	works := func(handler plugins.Handler) {
		t.Helper()
		if got := verdicts(handle(t, handler, plugintest.Deltas(t)[:1])); got != "drop" {
			t.Errorf("got %s", got)
		}
	}
	one := open(true)
	two, three := open(false), open(false)
	must.Succeed(t, one.Close(t.Context()))
	works(two)
	must.Succeed(t, two.Close(t.Context()))
	works(three)
	four := open(false)
	must.Succeed(t, three.Close(t.Context()))
	works(four)
	must.Succeed(t, four.Close(t.Context()))
	five := open(true)
	works(five)
	must.Succeed(t, five.Close(t.Context()))
}

// BenchmarkCompile measures the compilation of the largest example, which is in Go, per MB of the
// file.
func BenchmarkCompile(b *testing.B) {
	file := "../../../bin/plugins/restart-alert.wasm"
	info, err := os.Stat(file)
	if err != nil {
		b.Skip("make build has not built the examples")
	}
	node := plugintest.Node(b, fmt.Sprintf("{module: %q}", file))
	b.SetBytes(info.Size())
	for b.Loop() {
		handler, err := wasm.Kind().Open(b.Context(), node, newHost().env)
		must.Succeed(b, err)
		must.Succeed(b, handler.Close(b.Context()))
	}
}
