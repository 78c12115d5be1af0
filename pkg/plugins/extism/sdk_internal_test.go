package extism

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
)

// sdkModules returns the folder of the modules with which Extism's Go SDK tests itself. They are in
// the module cache, because test/bench compares the router with the SDK, and no part of this
// repository.
func sdkModules(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/extism/go-sdk")
	cmd.Dir = "../../../test/bench"
	out, err := cmd.Output()
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("Extism's SDK cannot be downloaded: %v: %s", err, out)
	}
	must.Succeed(t, err)
	var module struct{ Dir string }
	must.Succeed(t, json.Unmarshal(out, &module))
	return filepath.Join(module.Dir, "wasm")
}

// answers is an [http.RoundTripper] without a network.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-A": {"b"}}, Body: io.NopCloser(strings.NewReader("from " + r.URL.Host)), Request: r}, nil
}

// recorder is a protocol that keeps the outputs of guests.
type recorder struct {
	protocol
	outputs *[]string
}

// Attach implements [engine.Protocol].
func (r recorder) Attach(ctx context.Context, in *engine.Instance) (engine.Session, error) {
	s, err := r.protocol.Attach(ctx, in)
	if err != nil {
		return nil, err
	}
	return recorded{s.(*session), r.outputs}, nil
}

type recorded struct {
	*session
	outputs *[]string
}

// Handle implements [engine.Session].
func (r recorded) Handle(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error) {
	results, err := r.session.Handle(ctx, batch, size)
	if err == nil {
		output, _ := r.memory.read(r.output.at, r.output.size)
		*r.outputs = append(*r.outputs, string(output))
		if results[0].Verdict == plugins.Fail && r.failure != "" {
			*r.outputs = append(*r.outputs, "error: "+r.failure)
		}
	}
	return results, err
}

// run returns what a function of a module answers to two deltas, or its error.
func run(t *testing.T, file, config string) (string, error) {
	t.Helper()
	node := plugintest.Node(t, config)
	var c handlerConfig
	must.Succeed(t, node.Decode(&c).Err())
	values, err := texts(c.Config)
	must.Succeed(t, err)
	module, err := os.ReadFile(file)
	must.Succeed(t, err)
	env := plugins.HandlerEnv{Env: plugins.Env{
		// The clock stands still, so that no guest exceeds its time on a busy machine.
		Name: "sdk", Cluster: "test", Metrics: metrics.New(), KV: kv.New(timer.NewFake(time.Now()), false), Log: slog.New(slog.DiscardHandler), Clock: timer.NewFake(time.Now()),
	}, Workers: 1, HTTP: answers{}}
	var outputs []string
	e, err := engine.New(t.Context(), engine.Settings{
		Module: module, Config: "null", Limits: c.Limits, Host: host.New(c.Allow, "null", &c.Limits, env), Env: env,
		Protocol: recorder{protocol{function: c.Function, config: values, limits: &c.Limits, blocks: 16 << 20}, &outputs},
	})
	if err != nil {
		return "", err
	}
	defer func() { must.Report(t, e.Close(context.WithoutCancel(t.Context()))) }()
	in, err := e.Start(t.Context())
	if err != nil {
		return "", err
	}
	defer in.Close(context.WithoutCancel(t.Context()))
	delta := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "web", 1, 10), Seen: time.Unix(1, 0)}
	for range 2 {
		if _, _, err := in.Handle(t.Context(), []*event.Delta{delta}, 0); err != nil {
			return strings.Join(outputs, "; "), err
		}
	}
	return strings.Join(outputs, "; "), nil
}

// TestSDKModules runs the modules of Extism's Go SDK, with the outputs that its tests expect.
func TestSDKModules(t *testing.T) {
	if effort.Race {
		t.Skip("compiling these modules takes minutes under the race detector; make test runs this without it, too")
	}
	dir := sdkModules(t)
	for _, tt := range []struct{ name, file, config, want, err string }{
		{name: "text format", file: "hello.wasm", want: "Hello, world!; Hello, world!"},
		{name: "alloc and free", file: "alloc.wasm", config: "limits: {fuel: 10G}", want: "; "},
		{name: "an error", file: "fail.wasm", want: "error: Some error message"},
		{name: "Rust", file: "count_vowels.wasm", config: "function: count_vowels, allow: {kv: true}", want: `"vowels":"aeiouAEIOU"`},
		{name: "Rust, configuration", file: "count_vowels.wasm", config: "function: count_vowels, allow: {kv: true}, config: {vowels: xyz}", want: `"vowels":"xyz"`},
		{name: "Rust, no grant", file: "count_vowels.wasm", config: "function: count_vowels", err: "var_get: not granted: see allow.kv"},
		{name: "TinyGo, configuration", file: "config.wasm", config: "config: {thing: hello}", want: `{"config": "hello"}; {"config": "hello"}`},
		{name: "TinyGo, no configuration", file: "config.wasm", want: `{"config": "<unset by host>"}`},
		{name: "TinyGo, input", file: "replace.wasm", want: `"kind":"Pod"`},
		{name: "TinyGo, log", file: "log.wasm", want: ""},
		{name: "TinyGo, stdout", file: "println.wasm", want: ""},
		{name: "TinyGo, nothing", file: "noop.wasm", want: "; "},
		{name: "TinyGo, HTTP", file: "http.wasm", config: `allow: {http: [{host: "jsonplaceholder.typicode.com:443"}]}`, want: "from jsonplaceholder.typicode.com"},
		{name: "TinyGo, no grant", file: "http.wasm", err: "http_request: not granted: see allow.http"},
		{name: "TinyGo, files", file: "fs.wasm", err: ""},
		{name: "Go, files", file: "fs_std.wasm", err: ""},
		{name: "Haskell", file: "hello_haskell.wasm", config: "function: testing, config: {greeting: Howdy}", want: "Howdy, {"},
		{name: "a function of another host", file: "host.wasm", err: "it imports what the router does not give: extism:host/user.mult"},
		{name: "two modules", file: "main.wasm", err: "it imports what the router does not give: lib.capitalize"},
		{name: "another ABI", file: "nested.c.instr.wasm", err: "dylibso_observe.instrument_enter"},
		{name: "Go, a program", file: "count_vowels_std.wasm", config: "function: _start", err: "export a function, and name that"},
		{name: "Go, no function", file: "std_command.wasm", err: "it does not export the function run_test"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := tt.config
			if !strings.Contains(config, "function:") {
				config = strings.TrimSuffix("function: run_test, "+config, ", ")
			}
			got, err := run(t, filepath.Join(dir, tt.file), "{module: a.wasm, "+config+"}")
			t.Logf("%q, %v", got, err)
			if tt.err != "" {
				must.Fail(t, err, tt.err)
				return
			}
			must.Succeed(t, err)
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
