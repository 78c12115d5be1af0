package stdio_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdio"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestFiles shows what a command can do with files: read those of its configuration, and no others,
// and change none.
func TestFiles(t *testing.T) {
	// Guarantee: command-files
	dir := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	for name, text := range map[string]string{"a.txt": "hello", "sub/b": "", "sub/c": ""} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r := newRouter(t)
	h := r.open(t, mode(t, "files", fmt.Sprintf(", /data/a.txt, data/a.txt, /data/../data/sub, /data/x, /etc/passwd, /data/../../etc/passwd], files: [{folder: %q, to: /data}]", dir)))
	want := `ok ["/data/a.txt=hello","data/a.txt=hello","/data/../data/sub/b false true","/data/../data/sub/c false true",` +
		`"open /data/x: No such file or directory","open /etc/passwd: No such file or directory","open /data/../../etc/passwd: No such file or directory",` +
		`"3lohtrue","open /new: Read-only file system","open /data/a.txt: Read-only file system","mkdir /folder: Read-only file system","remove /data/a.txt: Read-only file system"]`
	for range 2 { // its descriptors are free again
		if got := handle(t, h, "a"); got[0] != want {
			t.Errorf("got  %s\nwant %s", got[0], want)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	if string(text) != "hello" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

// TestSurroundings shows arguments, environment and configuration, and that nothing of the router's
// environment is in it.
func TestSurroundings(t *testing.T) {
	t.Setenv("SECRET", "s")
	h := newRouter(t).open(t, mode(t, "args", `, "two words", ""], env: {B: "2", A: "x=1"}, config: {threshold: 3}`))
	want := `ok [["guest","args","two words",""],["A=x=1","B=2","DELTAROUTER_CONFIG={\"threshold\":3}"]]`
	if got := handle(t, h, "a"); got[0] != want {
		t.Errorf("got  %s\nwant %s", got[0], want)
	}
	for _, name := range []string{"files", "sockets"} { // without any files
		h := newRouter(t).open(t, mode(t, name, ", /etc/passwd]"))
		if got := handle(t, h, "a"); strings.Contains(got[0], "root") || name == "sockets" && got[0] != "ok true" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestClock: time and random numbers depend on the deltas, unless they are granted.
func TestClock(t *testing.T) {
	// Guarantee: guest-deterministic
	once := func(more string) string {
		r := newRouter(t)
		r.env.Clock = timer.NewFake(time.Unix(1_800_000_000, 0))
		return handle(t, r.open(t, mode(t, "clock", "]"+more)), "a")[0]
	}
	if a, b := once(""), once(""); a != b || !strings.HasPrefix(a, "ok [1700000000,") {
		t.Errorf("%s, and again %s", a, b)
	}
	if a, b := once(", allow: {random: true}"), once(", allow: {random: true}"); a == b {
		t.Errorf("random numbers are twice %s", a)
	}
	if a := once(", allow: {clock: true}"); !strings.HasPrefix(a, "ok [1800000000,") {
		t.Errorf("the time is %s", a)
	}
	if got := handle(t, newRouter(t).open(t, mode(t, "sleep", "]")), "a"); got[0] != "ok true" {
		t.Errorf("sleeping: %s", got)
	}
}

// TestStart shows the errors of a command that does not wait for deltas.
func TestStart(t *testing.T) {
	for _, tt := range []struct{ mode, want string }{
		{"exits at once", "the guest exited with code 0 before it read stdin"},
		{"fails at once", "the guest exited with code 3"},
		{"loops at once", "out of fuel: its start takes more than 100000000 instructions: raise limits.initFuel"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			r := newRouter(t)
			_, err := r.tryOpen(t, mode(t, tt.mode, "], limits: {initFuel: 100M}"))
			must.Fail(t, err, tt.want)
			if tt.mode == "fails at once" && !strings.Contains(r.log.String(), "no database") {
				t.Errorf("the log lacks its message:\n%s", r.log.String())
			}
		})
	}
}

// TestComponent: a component is rejected with the remedy.
func TestComponent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "component.wasm")
	must.Succeed(t, os.WriteFile(file, []byte("\x00asm\x0d\x00\x01\x00rest"), 0o600))
	_, err := newRouter(t).tryOpen(t, fmt.Sprintf("{module: %q}", file))
	must.Fail(t, err, "a WebAssembly component, as toolchains build for WASI 0.2 and later: the router runs core modules only: build it for WASI preview 1, which toolchains call wasm32-wasip1")
}

// TestMistakes shows the problems of a configuration.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{`{args: [a]}`, "module is missing"},
		{`{module: a.wasm, env: {"A=B": c}}`, "is no environment variable"},
		{`{module: a.wasm, env: {DELTAROUTER_CONFIG: c}}`, "is the variable with `config`"},
		{`{module: a.wasm, args: ["a\0b"]}`, "contains a zero byte"},
		{`{module: a.wasm, limits: {batch: 3}}`, "is no limit of a command: it gets one delta at a time; remove it"},
		{`{module: a.wasm, limits: {kv: 1Mi}}`, "is no limit of a command: it has no store; remove it"},
		{`{module: a.wasm, allow: {kv: true}}`, "kv"},
		{`{module: a.wasm, files: [{file: a, folder: b, to: /c}]}`, "must have one of file, folder and archive"},
		{`{module: a.wasm, files: [{to: /c}]}`, "must have one of file, folder and archive"},
		{`{module: a.wasm, files: [{file: a, to: c}]}`, "must be an absolute path"},
		{`{module: a.wasm, files: [{file: a, to: /b/../c}]}`, "must be an absolute path"},
		{`{module: a.wasm, files: [{file: a, to: /}]}`, "is the path of the file itself"},
		{`{module: a.wasm, files: [{file: a, to: /b, sha256: "12"}]}`, "must be 64 hexadecimal digits"},
		{`{module: a.wasm, files: [{folder: a, to: /b, sha256: e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763}]}`, "a folder has none"},
	} {
		problems := stdio.Kind().Check(plugintest.Node(t, tt.config))
		if problems == nil || !strings.Contains(problems.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.config, problems, tt.want)
		}
	}
}
