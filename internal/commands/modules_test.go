package commands

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// guest assembles a WebAssembly module of the router's ABI: version is the body of its
// rtr_abi_version, and of a function that is exported under another name. It may import http, which
// is then function 0; a URL is at address 0.
func guest(imports bool, version []byte, other, url string) []byte {
	vector := func(items ...[]byte) []byte {
		return slices.Concat(append([][]byte{binary.AppendUvarint(nil, uint64(len(items)))}, items...)...)
	}
	sized := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	section := func(id byte, b []byte) []byte { return append([]byte{id}, sized(b)...) }
	code := func(body ...byte) []byte { return sized(append(append([]byte{0}, body...), 0x0b)) }
	first, imported := byte(0), vector()
	if imports {
		first, imported = 1, vector(slices.Concat(sized([]byte("rtr_v1")), sized([]byte("http")), []byte{0, 4}))
	}
	export := func(name string, kind, index byte) []byte { return append(sized([]byte(name)), kind, index) }
	const i32, i64 = 0x7f, 0x7e
	return slices.Concat(
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, vector([]byte{0x60, 0, 1, i32}, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 2, i32, i32, 1, i64}, []byte{0x60, 0, 0},
			[]byte{0x60, 4, i32, i32, i32, i32, 1, i32})),
		section(2, imported),
		section(3, []byte{4, 0, 1, 2, 3}),
		section(5, []byte{1, 0, 1}),
		section(7, vector(export("memory", 2, 0), export("rtr_abi_version", 0, first), export("rtr_alloc", 0, first+1),
			export("rtr_handle", 0, first+2), export(other, 0, first+3))),
		section(10, vector(code(version...), code(0x41, 0), code(0x42, 0), code())),
		section(11, vector(slices.Concat([]byte{0, 0x41, 0, 0x0b}, sized([]byte(url))))),
	)
}

// working is a guest that does nothing.
func working() []byte { return guest(false, []byte{0x41, 1}, "other", "") }

// withoutSecrets returns the output of router check without missing secrets: those of the examples
// exist only where a router runs.
func withoutSecrets(said string) string {
	var rest strings.Builder
	for line := range strings.Lines(said) {
		if !strings.Contains(line, ": has no value here: ") {
			rest.WriteString(line)
		}
	}
	return strings.TrimSpace(rest.String())
}

// TestCheckModules shows that router check loads the handlers, so that it finds an unusable module.
func TestCheckModules(t *testing.T) {
	// Guarantee: check-modules
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer server.Close()
	request := fmt.Sprintf(`{"url":%q}`, server.URL)
	// http(0, size, 1024, 1024), and a trap without an answer.
	asks := slices.Concat([]byte{0x41, 0, 0x41}, []byte{byte(len(request))}, []byte{0x41, 0x80, 0x08, 0x41, 0x80, 0x08, 0x10, 0, 0x1a, 0x00})
	unreachable, loop := []byte{0x00}, []byte{0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 1}
	grant := fmt.Sprintf(`, allow: {http: [{host: %q, scheme: http}]}`, strings.TrimPrefix(server.URL, "http://"))
	for _, c := range []struct {
		name   string
		module []byte // nil: no file
		more   string
		code   int
		want   string
	}{
		{"one that works", working(), "", cli.CodeOK, ""},
		{"no file", nil, "", cli.CodeUsage, "config.yaml:4:31: handlers.h.wasm.module: module guest.wasm: there is no such file or folder: build it, or correct the path"},
		{"not WebAssembly", []byte("#!/bin/sh\n"), "", cli.CodeUsage, "handlers.h.wasm.module: module guest.wasm: not a WebAssembly module"},
		{"damaged", working()[:60], "", cli.CodeUsage, "it cannot be compiled"},
		{"another ABI", guest(false, []byte{0x41, 2}, "other", ""), "", cli.CodeUsage, "it speaks version 2 of the ABI rtr_v1"},
		{"a program", guest(false, unreachable, "_start", ""), "", cli.CodeUsage, "rtr_abi_version: the guest trapped: unreachable: it is a program, not a library: build it with -buildmode=c-shared (Go)"},
		{"too little fuel", guest(false, loop, "other", ""), ", limits: {initFuel: 10k}", cli.CodeUsage, "raise limits.initFuel"},
		{"a right that is missing", guest(true, []byte{0x41, 1}, "other", ""), "", cli.CodeUsage, "it imports rtr_v1.http: add allow: {http: "},
		{"one that needs the network", guest(true, asks, "other", request), grant, cli.CodeOK, "warning: handlers.h.wasm.module: its start fails without requests, which this check does not send"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			config := fmt.Sprintf(`version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
handlers: {h: {wasm: {module: guest.wasm%s}}}
routes: [{name: r, from: pods, handler: h, to: out}]
`, c.more)
			must.Succeed(t, os.WriteFile("config.yaml", []byte(config), 0o600))
			if c.module != nil {
				must.Succeed(t, os.WriteFile("guest.wasm", c.module, 0o600))
			}
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &stdout, &stderr)
			if said := stderr.String(); code != c.code || !strings.Contains(said, c.want) || (said == "") != (c.want == "") {
				t.Errorf("exit code %d, it says %s", code, said)
			}
		})
	}
	if asked {
		t.Error("the check sent a request")
	}
}

// TestCheckSecrets shows that missing files and variables are warnings with their positions, and no
// mistakes: the router may run on another machine.
func TestCheckSecrets(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(`version: 1
sources: {pods: {resource: v1/pods}}
sinks:
  file: {webhook: {url: "https://a.example", headers: {a: {file: /nowhere/token}}}}
  env: {webhook: {url: {env: NOWHERE_URL}}}
  here: {webhook: {url: "https://a.example", headers: {a: plain, b: {env: HERE}}}}
routes: [{name: r, from: pods, to: [file, env, here]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HERE", "x")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"check", "-config", config}, &stdout, &stderr)
	said := stderr.String()
	for _, want := range []string{
		"config.yaml:4:59: warning: sinks.file.webhook.headers.a: has no value here: secret file /nowhere/token cannot be read: there is no such file or folder",
		"config.yaml:5:24: warning: sinks.env.webhook.url: has no value here: environment variable NOWHERE_URL is empty or not set",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %s, but %s", want, said)
		}
	}
	if code != cli.CodeOK || strings.Count(said, "warning: ") != 2 {
		t.Errorf("exit code %d, it says %s", code, said)
	}
}
