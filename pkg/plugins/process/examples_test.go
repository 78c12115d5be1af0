package process_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/test/built"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

const examples = "../../../examples/plugins/"

// openProgram opens a handler that runs a file.
func (b *bench) openProgram(file, more string) {
	b.t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(b.t, err)
	sum := sha256.Sum256(text)
	yaml := fmt.Sprintf("command: %q\nsha256: %s\n%s", file, hex.EncodeToString(sum[:]), more)
	if b.handler, err = process.Kind().Open(b.t.Context(), plugintest.Node(b.t, yaml), b.env); err != nil {
		b.t.Fatalf("open: %v\n%s", err, b.log)
	}
}

// TestDocumentedMain: the program in docs/PLUGINS.md, which is also in the documentation of
// sdk/process, is a plugin of 20 lines.
func TestDocumentedMain(t *testing.T) {
	_, text, _ := strings.Cut(string(mustRead(t, "../../../docs/PLUGINS.md")), "## A native plugin in Go\n")
	_, text, _ = strings.Cut(text, "```go\n")
	text, _, _ = strings.Cut(text, "```\n")
	if n := strings.Count(text, "\n"); n < 10 || n > 20 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	documentation := strings.ReplaceAll(string(mustRead(t, "../../../sdk/process/doc.go")), "//\n", "//\t\n")
	if commented := "//\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n//\t"); !strings.Contains(documentation, commented) {
		t.Errorf("sdk/process has another one than\n%s", commented)
	}
	folder := t.TempDir()
	source := filepath.Join(folder, "main.go")
	must.Succeed(t, os.WriteFile(source, []byte(text), 0o600))
	b := newBench(t)
	// in this module
	b.openProgram(built.Program{Package: source, Flags: []string{"-ldflags=-s -w"}}.File(t), "")
	contains(t, b.handle("a")[0], `ok {"pod":"a"}`)
	b.close()
	contains(t, b.log.String(), "plugin=names plugin_version=1.0.0")
}

func TestExampleGo(t *testing.T) {
	b := newBench(t)
	b.openProgram(built.Native(t, examples+"native-go"), "allow: {kv: true}\nconfig: {prefix: n/}")
	contains(t, b.handle("a")[0], `ok {"change":"added pods default/a","number":1}`)
	contains(t, b.handle("b")[0], `ok {"change":"added pods default/b","number":2}`)
	b.close()
	if value, _ := b.memory.Get("n/default"); string(value) != "2" {
		t.Errorf("it remembers %q", value)
	}
}

// python returns the folder of a python3 with grpcio: the first in the path, or that of the system.
func python(t *testing.T) (folder string) {
	t.Helper()
	var said []string
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		file, err := exec.LookPath(name)
		if err == nil {
			var out []byte
			if out, err = exec.Command(file, "-c", "import grpc").CombinedOutput(); err == nil {
				return filepath.Dir(file)
			}
			err = fmt.Errorf("%s: %w: %s", file, err, out)
		}
		said = append(said, err.Error())
	}
	t.Skipf("SKIPPED: python3 with grpcio is not there (pip install grpcio, or Debian's python3-grpcio): %s", strings.Join(said, "; "))
	return ""
}

// TestExamplePython: a plugin without Go keeps the contract of every handler, and a kill loses
// nothing.
func TestExamplePython(t *testing.T) {
	// Guarantee: plugin-crash
	b := newBench(t)
	env := fmt.Sprintf("env: {PATH: %q", python(t)+":"+os.Getenv("PATH"))
	for _, name := range []string{"PYTHONPATH", "LD_LIBRARY_PATH"} {
		if os.Getenv(name) != "" {
			env += ", " + name + ": {env: " + name + "}"
		}
	}
	config := "tls: false\n" + env + "}\n"
	file, err := filepath.Abs(examples + "native-python/main.py")
	must.Succeed(t, err)
	b.openProgram(file, config)
	pod := func(labels string) *event.Object {
		return plugintest.Object(t, `{"metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"1","labels":`+labels+`}}`)
	}
	batch := []*event.Delta{
		{Source: "pods", Op: event.Added, New: pod(`{"app":"web"}`)},
		{Source: "pods", Op: event.Updated, Old: pod(`{"app":"web"}`), New: pod(`{"app":"web"}`)},
		{Source: "pods", Op: event.Deleted, Old: pod(`{"app":"web","tier":"ü"}`), Since: time.Unix(1e9, 1), Late: true, Repeat: 1, Suppressed: 1 << 40},
	}
	results, err := b.handler.Handle(t.Context(), batch)
	must.Succeed(t, err)
	for i, want := range []string{
		`{"name": "a", "labels": {"app": [null, "web"]}}`, "", `{"name": "a", "labels": {"app": ["web", null], "tier": ["\u00fc", null]}}`,
	} {
		got := ""
		if len(results[i].Events) > 0 {
			got = string(results[i].Events[0].Data)
		}
		if results[i].Verdict != plugins.OK || got != want {
			t.Errorf("%d: %s %v %s, want %s", i, results[i].Verdict, results[i].Err, got, want)
		}
	}
	b.close()
	if strings.Contains(b.log.String(), "is killed") {
		t.Error("it does not end by itself")
	}
	b.nothingLeft()
	b.openProgram(file, config+"limits: {breaker: 0}")
	b.killOverAndOver(effort.Rounds(2, 10, 50))
	b.close()
	sum := sha256.Sum256(mustRead(t, file))
	plugintest.RunHandler(t, plugintest.Handler{
		Kind: process.Kind(), Config: fmt.Sprintf("command: %q\nsha256: %s\n%s", file, hex.EncodeToString(sum[:]), config), Env: b.env,
	})
	b.nothingLeft()
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return text
}
