package extism_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/extism"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/handlertest"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestContract(t *testing.T) {
	plugintest.RunHandler(t, plugintest.Handler{Kind: extism.Kind(), Config: fmt.Sprintf("{module: %q}", guest(t)), Env: newHost(t).env})
}

func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	handlertest.Fields(t, newHost(t).open(t, "fields: [status.phase]"), "objects")
}

const settings = `config: {greeting: hi, number: 3, list: [a, {b: null}]}`

// TestAnswers shows the results of a guest.
func TestAnswers(t *testing.T) {
	h := newHost(t).open(t, settings)
	for _, tt := range []struct{ action, want string }{
		{"none", "ok"},
		{"bytes", "ok /=true"},
		{"config", `ok /=["hi",3,["a",{"b":null}],0]`},
		{"fail", "fail extism \"notify\": as you wish\ufffd[31m"},
		{"freed", `fail extism "notify": a freed message`},
		{"forgiven", "ok"},
		{"code", `fail extism "notify": the guest returned 7, without a message`},
		{"nohttp", "ok /=[0,0]"},
		{"time", `ok /=["2023-11-14T22:13:20Z"]`},
		{"blocks", `ok /="one second block 3 0 12 0 0 0 111 0 0 0 true 0 second block 6 second 6"`},
	} {
		if got := one(t, h, tt.action); got != tt.want {
			t.Errorf("%s: got  %s\nwant %s", tt.action, got, tt.want)
		}
	}
	if got := one(t, h, "echo"); !strings.HasPrefix(got, `ok /={"op":"updated","source":"pods","cluster":`) || !strings.Contains(got, `"name":"echo"`) ||
		!strings.Contains(got, `,"object":{`) || !strings.HasSuffix(got, "}}") || !strings.Contains(got, `,"oldObject":{`) {
		t.Errorf("echo: got %s", got)
	}
}

// TestVerdicts shows that an answer may be a verdict.
func TestVerdicts(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{`{"drop":true}`, "drop"},
		{`{"retry":"later","afterMs":5000}`, `retry extism "notify": later`},
		{`{"error":"no"}`, `fail extism "notify": no`},
		{`{"events":[{"data":1}]}`, "ok /=1"},
		{`[{"type":"t","subject":"s","data":1},{"data":2}]`, "ok t/s=1 /=2"},
		{`[{"data":1},{"data":2},{"data":3}]`, `fail extism "notify": more than 2 events for one delta (limits.events)`},
	} {
		h := newHost(t).open(t, fmt.Sprintf("config: {answer: %q}, limits: {events: 2}", tt.answer))
		if got := one(t, h, "verdict"); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.answer, got, tt.want)
		}
	}
}

// TestBatch shows that an error is that of its delta, and that a delta finds nothing of another.
func TestBatch(t *testing.T) {
	h := newHost(t)
	results, err := h.open(t, settings).Handle(t.Context(), deltas(t, "calls", "fail", "echo", "blocks", "code", "calls"))
	must.Succeed(t, err)
	var verdicts []string
	for _, r := range results {
		verdicts = append(verdicts, r.Verdict.String())
	}
	if got := strings.Join(verdicts, " "); got != "ok fail ok ok fail ok" {
		t.Errorf("got %s", got)
	}
	if got := describe(results[5]); got != "ok /=6" {
		t.Errorf("the guest was not the same: %s", got)
	}
	if n := testutil.CollectAndCount(h.env.Metrics.(*metrics.Metrics).GuestsEnded); n != 0 {
		t.Errorf("guests ended for %d reasons", n)
	}
}

// TestGrants shows that the functions of the host need grants, and work with them.
func TestGrants(t *testing.T) {
	// Guarantee: guest-grants
	for _, tt := range []struct{ action, allow, want string }{
		{"vars", "", "var_get: not granted: see allow.kv"},
		{"vars", "kv: true", "ok /=[0,3,0]"},
		{"largevar", "kv: true", "var_set: a limit was exceeded"},
		{"varkeys", "kv: true", "var_get: an argument is not valid"},
		{"lookup", "", "lookup: not granted: see allow.lookup"},
		{"lookup", "lookup: [pods]", "lookup: not granted: see allow.lookup"},
		{"lookup", "lookup: [nodes]", `ok /={"objects":[{"metadata":{"name":"n1"}}]}`},
		{"http", "", "http_request: not granted: see allow.http"},
		{"http", `http: [{host: "example.org:443"}]`, "http_request: not granted: see allow.http"},
		{"hugerequest", `http: [{host: "example.org:443"}]`, "http_request: a limit was exceeded"},
	} {
		h := newHost(t).open(t, fmt.Sprintf("config: {request: '{\"url\":\"https://example.com/\"}'}, allow: {%s}", tt.allow))
		if got := one(t, h, tt.action); !strings.Contains(got, tt.want) {
			t.Errorf("%s with %q: got %s, want %s", tt.action, tt.allow, got, tt.want)
		}
	}
}

// TestVariables shows that variables are values of the handler: a failed call or delta leaves none,
// and another instance finds them.
func TestVariables(t *testing.T) {
	// Guarantee: call-atomic
	h := newHost(t)
	const config = "allow: {kv: true}"
	first := h.open(t, config)
	for i, want := range []string{"ok /=1", "ok /=2"} {
		if got := one(t, first, "count"); got != want {
			t.Errorf("%d: got %s, want %s", i, got, want)
		}
	}
	results, err := first.Handle(t.Context(), deltas(t, "count", "panic", "count"))
	must.Succeed(t, err)
	if a, b := describe(results[0]), describe(results[2]); a != "ok /=3" || b != "ok /=4" || results[1].Verdict != plugins.Fail {
		t.Errorf("around a panic: got %s and %s", a, b)
	}
	results, err = first.Handle(t.Context(), deltas(t, "countfail", "count", "countfail"))
	must.Succeed(t, err)
	if got := describe(results[1]); got != "ok /=5" || !strings.Contains(describe(results[0]), "counted in vain") {
		t.Errorf("beside deltas that fail: got %s", got)
	}
	if got := one(t, h.open(t, config), "count"); got != "ok /=6" {
		t.Errorf("another instance: got %s", got)
	}
}

func TestHTTP(t *testing.T) {
	// Guarantee: guest-http
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Date", "now")
		if r.URL.Path == "/empty" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %q %q", r.Method, r.Header.Get("X-Test"), r.Header.Get("Authorization"), body)
	}))
	defer server.Close()
	t.Setenv("EXTISM_TEST_SECRET", "secret")
	address := strings.TrimPrefix(server.URL, "http://")
	open := func(path, more string) plugins.Handler {
		return newHost(t).open(t, fmt.Sprintf(`config: {request: '{"url":"%s%s","method":"post","headers":{"X-Test":"é"%s}}'}, allow: {http: [{host: %q, scheme: http, private: true, rate: 1000, headers: {Authorization: {env: EXTISM_TEST_SECRET}}}]}`, server.URL, path, more, address))
	}
	if got, want := one(t, open("/", ""), "http"), `ok /=[418,"POST é \"secret\" \"hello \\xff\"","{\"content-length\":\"29\",\"content-type\":\"text/plain\",\"date\":\"now\"}"]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := one(t, open("/empty", ""), "httptwice"); got != "ok /=0" {
		t.Errorf("an empty body: got %s", got)
	}
	if got := one(t, open("/", `,"Host":"other"`), "http"); !strings.Contains(got, "not granted") {
		t.Errorf("a header of the router: got %s", got)
	}
	if got := one(t, open("/", `,"authorization":"mine"`), "http"); !strings.Contains(got, "not granted") {
		t.Errorf("a secret header: got %s", got)
	}
	gone := open("/", "")
	server.Close()
	if got := one(t, gone, "http"); !strings.Contains(got, "http_request: the connection was refused") {
		t.Errorf("without a server: got %s", got)
	}
}

func TestLog(t *testing.T) {
	h := newHost(t)
	if got := one(t, h.open(t, ""), "log"); got != "ok /=2" {
		t.Errorf("the level: got %s", got)
	}
	for _, want := range []string{"level=INFO", "level=WARN", "level=ERROR"} {
		if n := strings.Count(h.log.String(), want+` msg="handler says" from=log text="a line`); n != 1 {
			t.Errorf("%d lines with %s:\n%s", n, want, h.log)
		}
	}
	if strings.Contains(h.log.String(), "level=DEBUG") {
		t.Error("debug lines are logged")
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"no module", "config: {a: 1}", "module"},
		{"no hash", "{module: a.wasm, sha256: 12}", "64 hexadecimal digits"},
		{"no function", `{module: a.wasm, function: ""}`, "function"},
		{"too little memory", "{module: a.wasm, limits: {memory: 128Ki}}", "at least 256Ki"},
		{"config that is no mapping", "{module: a.wasm, config: [a]}", "must be a mapping"},
		{"config that is no JSON", "{module: a.wasm, config: {a: .nan}}", "JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := extism.Kind().Check(plugintest.Node(t, tt.config))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("got %v, want one problem with %q", problems, tt.want)
			}
		})
	}
}

// TestModules shows the errors about modules that cannot run.
func TestModules(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.wasm")
	must.Succeed(t, os.WriteFile(empty, []byte("\x00asm\x01\x00\x00\x00"), 0o600))
	component := filepath.Join(t.TempDir(), "component.wasm")
	must.Succeed(t, os.WriteFile(component, []byte("\x00asm\x0d\x00\x01\x00rest"), 0o600))
	open := func(config string) error {
		_, err := extism.Kind().Open(t.Context(), plugintest.Node(t, config), newHost(t).env)
		return err
	}
	for _, tt := range []struct{ config, want string }{
		{"module: /nowhere/a.wasm", "module /nowhere/a.wasm: there is no such file"},
		{fmt.Sprintf("{module: %q, sha256: %q}", empty, strings.Repeat("a", 64)), "its content differs from sha256"},
		{fmt.Sprintf("{module: %q}", component), "a WebAssembly component, as toolchains build for WASI 0.2 and later: the router runs core modules only: build it for WASI preview 1, which toolchains call wasm32-wasip1"},
		{fmt.Sprintf("{module: %q}", empty), "it does not export the function handle: name one of its functions with `function`: it exports none that takes nothing"},
		{fmt.Sprintf("{module: %q, function: \"a\\eb\"}", guest(t)), "it does not export the function a\ufffdb: name one of its functions with `function`: handle, nothing"},
		{fmt.Sprintf("{module: %q, function: wrong}", guest(t)), "the function wrong is (i32) → (): a function for deltas takes nothing and returns nothing or an i32"},
		{fmt.Sprintf("{module: %q, function: _initialize}", guest(t)), "export a function, and name that"},
		{"module: ../../../examples/plugins/label-audit/label-audit.wasm", "it is a module for the ABI rtr_v1: write `wasm:` in place of `extism:`"},
	} {
		must.Fail(t, open(tt.config), tt.want)
	}
	if got := one(t, newHost(t).open(t, "function: nothing"), "echo"); got != "ok" {
		t.Errorf("a function without a result: got %s", got)
	}
	_, err := wasm.Kind().Open(t.Context(), plugintest.Node(t, fmt.Sprintf("{module: %q}", guest(t))), newHost(t).env)
	must.Fail(t, err, "it is a module for Extism: write `extism:` in place of `wasm:`")
}
