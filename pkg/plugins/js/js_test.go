package js_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/js"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/handlertest"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// host is the environment of handlers in a test.
type host struct {
	env plugins.HandlerEnv
	log *logged.Buffer
}

func newHost() *host {
	log := &logged.Buffer{}
	return &host{log: log, env: plugins.HandlerEnv{Env: plugins.Env{
		Name: "summary", Cluster: "test", Metrics: metrics.New(), KV: kv.New(timer.NewFake(time.Now()), false),
		// The clock stands still, so that no handler exceeds its time on a busy machine.
		Clock: timer.NewFake(time.Now()),
		Log:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, Workers: 1, Lookup: onlyNodes{}}}
}

// onlyNodes has one node, n1.
type onlyNodes struct{}

func (onlyNodes) Get(source, _, name string) *event.Object {
	if source != "nodes" || name != "n1" {
		return nil
	}
	o, err := event.ParseObject(&event.Resource{Kind: "Node"}, `{"metadata":{"name":"n1"}}`)
	if err != nil {
		panic(err)
	}
	return o
}

func (n onlyNodes) Lookup(source, _, _ string) []*event.Object {
	return []*event.Object{n.Get(source, "", "n1")}
}

func (onlyNodes) Count(string, string, string) int { return 1 }

func (h *host) tryOpen(t testing.TB, config string) (plugins.Handler, error) {
	t.Helper()
	k := js.Kind()
	if problems := k.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	handler, err := k.Open(t.Context(), plugintest.Node(t, config), h.env)
	if err != nil && strings.Contains(err.Error(), "built without the JavaScript engine") {
		t.Skip("the engine is missing: sh tools/jsengine.sh")
	}
	return handler, err
}

func (h *host) open(t testing.TB, config string) plugins.Handler {
	t.Helper()
	handler, err := h.tryOpen(t, config)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, handler.Close(context.WithoutCancel(t.Context()))) })
	return handler
}

// source returns a configuration with the body of a handler.
func source(body, more string) string {
	return "source: |\n  export default function (delta, ctx) {\n    " + strings.ReplaceAll(body, "\n", "\n    ") + "\n  }\n" + more
}

// pods returns n changes of pods.
func pods(t testing.TB, n int) (deltas []*event.Delta) {
	t.Helper()
	for i := range n {
		deltas = append(deltas, &event.Delta{
			Source: "pods", Op: event.Updated, Old: plugintest.Pod(t, "web", i+1, 10), New: plugintest.Pod(t, "web", i+2, 10), Seen: time.Unix(1_700_000_000, 0), With: []byte(`{"none":null,"pods":["a"]}`),
		})
	}
	return deltas
}

// describe formats a result: its verdict, its error, and its events.
func describe(r plugins.Result) string {
	text := r.Verdict.String()
	if r.Err != nil {
		text += " " + r.Err.Error()
	}
	for _, e := range r.Events {
		text += fmt.Sprintf(" %s/%s=%s", e.Type, e.Subject, e.Data)
	}
	return text
}

func one(t testing.TB, h plugins.Handler) string {
	t.Helper()
	results, err := h.Handle(t.Context(), pods(t, 1))
	must.Succeed(t, err)
	return describe(results[0])
}

func TestContract(t *testing.T) {
	h := newHost()
	h.open(t, source("return []", "")) // skips without an engine
	plugintest.RunHandler(t, plugintest.Handler{Kind: js.Kind(), Config: source("return [{data: delta.name}]", ""), Env: h.env})
}

func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	h := newHost().open(t, source("return [{data: [delta.object, delta.oldObject ?? null]}]", "fields: [status.phase]\n"))
	handlertest.Fields(t, h, "web")
}

// TestAnswers shows the results of handlers.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"an event", `return [{data: {pod: delta.name, op: delta.op, source: delta.source}}]`, `ok /={"pod":"web","op":"updated","source":"pods"}`},
		{"type and subject", `return [{type: "t", subject: "s", data: 1}, {data: null}]`, `ok t/s=1 /=null`},
		{"nothing", ``, `ok`},
		{"null", `return null`, `ok`},
		{"no events", `return []`, `ok`},
		{"drop", `return ctx.drop`, `drop`},
		{"retry", `throw ctx.retry("not yet", 5000)`, `retry js "summary": not yet`},
		{"objects", `return [{data: [delta.object.metadata.resourceVersion, delta.oldObject.metadata.resourceVersion]}]`, `ok /=["2","1"]`},
		{"an object may be changed", `delta.object.metadata = 1; delta.oldObject = 2; return [{data: [delta.object.metadata, delta.oldObject]}]`, `ok /=[1,2]`},
		{"the values of with", `return [{data: [delta.with.pods, typeof delta.with.none]}]`, `ok /=[["a"],"object"]`},
		{"async", `return (async () => { await null; return [{data: 1}] })()`, `ok /=1`},
		{"async that fails", `return (async () => { await null; throw new Error("late") })()`, `<source>:2: Error: late`},
		{"a promise that is never settled", `return new Promise(() => {})`, `fail js "summary": the promise of the handler is never settled`},
		{"an error", `throw new Error("on purpose")`, `Error: on purpose`},
		{"fetch", `return fetch("https://a.example")`, `fetch is not defined: use ctx.http({url: …}), which allow.http grants`},
		{"a timer", `setTimeout(() => {}, 1)`, `setTimeout is not defined: there are no timers; return ctx.retry(message, afterMs)`},
		{"no error", `throw {a: 1}`, `threw {"a":1}`},
		{"no data", `return [{type: "t"}]`, `TypeError: event 0 has no data`},
		{"an unknown member", `return [{data: 1, extra: 2}]`, `event 0 has the member extra: an event is {type, subject, data}`},
		{"no list", `return 3`, `the handler returned neither an array of events nor nothing`},
		{"a type that is no text", `return [{type: 3, data: 1}]`, `event 0: type is not a string`},
		{"not JSON", `return [{data: 10n}]`, `TypeError`},
		{"text beyond ASCII", `return [{data: "é\ud800\u0000"}]`, `ok /="é\ud800\u0000"`},
		{"a zone", `return [{data: [new Date(0).getTimezoneOffset(), new Date().toISOString()]}]`, `ok /=[0,"2023-11-14T22:13:20.000Z"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := one(t, newHost().open(t, source(tt.body, "")))
			want := strings.Replace(tt.want, "<source>:2", "test.yaml:3", 1)
			if got != want && !(strings.Contains(tt.want, ":") && strings.HasPrefix(got, "fail") && strings.Contains(got, strings.TrimPrefix(tt.want, "<source>:2: "))) && !strings.Contains(got, tt.want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestLargeIntegers: integers beyond 2^53 are the nearest number, or a text with their digits;
// other numbers, and digits within texts, stay as they are.
func TestLargeIntegers(t *testing.T) {
	const values = `[9007199254740991, 9007199254740993, -9007199254740993, 18446744073709551615, 0.12345678901234567, 12345678901234567.5, 1e300, "9007199254740993", "\\\"9007199254740993, 9007199254740993"]`
	for setting, want := range map[string]string{
		"": `ok /=[9007199254740991,9007199254740992,-9007199254740992,18446744073709552000,0.12345678901234566,12345678901234568,1e+300,` +
			`"9007199254740993","\\\"9007199254740993, 9007199254740993"]`,
		"largeIntegers: text\n": `ok /=[9007199254740991,"9007199254740993","-9007199254740993","18446744073709551615",0.12345678901234566,12345678901234568,1e+300,` +
			`"9007199254740993","\\\"9007199254740993, 9007199254740993"]`,
	} {
		h := newHost().open(t, source(`return [{data: delta.object.values}]`, setting))
		o, err := event.ParseObject(&event.Resource{Kind: "Pod"}, `{"metadata":{"name":"web","namespace":"default"},"values":`+values+`}`)
		must.Succeed(t, err)
		results, err := h.Handle(t.Context(), []*event.Delta{{Source: "pods", Op: event.Added, New: o}})
		must.Succeed(t, err)
		if got := describe(results[0]); got != want {
			t.Errorf("%s: got  %s\nwant %s", setting, got, want)
		}
	}
}

// TestPositions shows that errors name the place in the user's source.
func TestPositions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "handler.js")
	write := func(text string) string {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		return fmt.Sprintf("file: %q\n", file)
	}
	t.Run("in a file", func(t *testing.T) {
		h := newHost().open(t, write("function f(d) {\n  return d.object.none.foo;\n}\nexport default (d) => f(d);\n"))
		if got, want := one(t, h), file+":2:10: TypeError: cannot read property 'foo' of undefined (in f)"; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("in the configuration", func(t *testing.T) {
		got := one(t, newHost().open(t, source("const x = `${delta.name}`;\nreturn delta.object.none.foo;", "")))
		if want := ":4:12: TypeError: cannot read property 'foo' of undefined"; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	for _, tt := range []struct{ name, text, want string }{
		{"syntax", "let a = 1;\nfunction x( {\n", ":3:"},
		{"no export", "let a = 1;", "no default export"},
		{"no function", "export default 3;", "no default export that is a function"},
		{"a failing start", "\nthrow new Error('early');\nexport default () => [];", ":2:11: Error: early"},
		{"an import", "import x from 'fs';\nexport default () => [];", "could not load module 'fs': a handler is one file: bundle its modules into it"},
		{"an endless await", "await new Promise(() => {});\nexport default () => [];", "top-level await never ends"},
		{"an endless start", "for (;;);\nexport default () => [];", "raise limits.initFuel"},
		{"a look-up at the start", "export default () => [];", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := newHost().tryOpen(t, write(tt.text))
			if tt.want == "" {
				must.Succeed(t, err)
				must.Succeed(t, h.Close(t.Context()))
				return
			}
			must.Fail(t, err, tt.want)
		})
	}
}

// TestHostileHandlers shows that a handler cannot exceed its limits, and that the next delta finds
// a working instance.
func TestHostileHandlers(t *testing.T) {
	// Guarantee: hostile-guest, guest-memory, js-recursion
	const limits = "limits: {memory: 16Mi, output: 64Ki, events: 3, fuel: 50M}\n"
	for _, tt := range []struct{ name, body, want string }{
		{"recursion", `(function f(n) { return 1 + f(n + 1) })(0)`, "RangeError: Maximum call stack size exceeded"},
		{"a caught recursion", `try { (function f(n) { return 1 + f(n + 1) })(0) } catch (e) { return [{data: e instanceof RangeError}] }`, "ok /=true"},
		{"an endless loop", `for (;;);`, "out of fuel"},
		{"a slow expression", `/^(a+)+$/.test("a".repeat(40) + "b")`, "out of fuel"},
		{"endless jobs", `return (async () => { for (;;) await null })()`, "out of fuel"},
		{"memory", `const a = []; for (;;) a.push(new Uint8Array(1 << 20))`, "out of memory"},
		{"a huge text", `return [{data: "x".repeat(1 << 17)}]`, "limits.output"},
		{"many events", `return Array(4).fill({data: 1})`, "4 events for one delta, at most 3"},
		{"a huge message", `throw new Error("x".repeat(1 << 17))`, "fail"},
		{"a message with a line end", `throw new Error("a\nb\u001b[31m")`, "fail"},
		{"replaced intrinsics", `JSON.stringify = Array.prototype.map = Object.defineProperty = () => { throw 1 }; return [{data: 1}]`, "ok"},
		{"a replaced promise", `Promise.prototype.then = () => {}; return Promise.resolve([{data: 1}])`, "never settled"},
		{"a failing stack", `Error.prepareStackTrace = () => { for (;;); }; throw new Error("x")`, "fail"},
		{"a text that calls the host", `throw {toString() { console.log("a"); throw this }, toJSON() { throw this }}`, "fail"},
		{"nested imports", `Error.prepareStackTrace = () => { import("x") }; return import("y")`, "fail"},
		{"no engine functions", `return [{data: [typeof std, typeof os, typeof require, typeof process, typeof WebAssembly]}]`, `["undefined","undefined","undefined","undefined","undefined"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			handler := h.open(t, source(`if (delta.object.metadata.resourceVersion !== "2") return [{data: "still"}];`+"\n"+tt.body, limits))
			got := one(t, handler)
			if !strings.Contains(got, tt.want) || len(got) > 8<<10 || strings.Contains(got, "\x1b") {
				t.Errorf("got %.300s, want %s", got, tt.want)
			}
			if strings.HasPrefix(tt.name, "replaced") {
				return
			}
			results, err := handler.Handle(t.Context(), pods(t, 2)[1:])
			must.Succeed(t, err)
			if got := describe(results[0]); got != `ok /="still"` {
				t.Errorf("the next delta: got %s", got)
			}
		})
	}
}

// TestRevived shows that an instance is repaired after a trap instead of replaced, and begins with
// the state after the start.
func TestRevived(t *testing.T) {
	// Guarantee: js-reset
	h := newHost()
	handler := h.open(t, "source: |\n  let n = 0;\n  console.log('started');\n  export default (d) => { n++; if (d.object.metadata.resourceVersion === '3') for (;;); return [{data: n}] };\n")
	for _, tt := range []struct {
		at, to int
		want   string
	}{{0, 1, "ok /=1"}, {0, 1, "ok /=2"}, {1, 2, "out of fuel"}, {0, 1, "ok /=1"}} {
		results, err := handler.Handle(t.Context(), pods(t, 2)[tt.at:tt.to])
		must.Succeed(t, err)
		if got := describe(results[0]); !strings.Contains(got, tt.want) {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	if n := strings.Count(h.log.String(), "started"); n != 1 {
		t.Errorf("%d instances were started", n)
	}
	if n := testutil.ToFloat64(h.env.Metrics.(*metrics.Metrics).GuestsEnded.WithLabelValues("summary", "fuel")); n != 1 {
		t.Errorf("%v guests ended by fuel", n)
	}
}

// TestFresh shows that with fresh no state passes from one delta to the next: neither variables nor
// changes of prototypes.
func TestFresh(t *testing.T) {
	// Guarantee: js-reset
	const body = `globalThis.n = (globalThis.n ?? 0) + 1; const before = ({}).polluted ?? null; Object.prototype.polluted = delta.name; return [{data: [n, before]}]`
	for fresh, want := range map[bool]string{true: `ok /=[1,null]`, false: `ok /=[3,"web"]`} {
		results, err := newHost().open(t, source(body, fmt.Sprintf("fresh: %v\n", fresh))).Handle(t.Context(), pods(t, 3))
		must.Succeed(t, err)
		if got := describe(results[2]); got != want {
			t.Errorf("fresh %v: got %s, want %s", fresh, got, want)
		}
	}
}

// TestGrants shows that the functions of the host need grants, and work with them.
func TestGrants(t *testing.T) {
	// Guarantee: guest-grants
	for _, tt := range []struct{ name, body, allow, want string }{
		{"kv without a grant", `ctx.kv.set("a", 1)`, "", "kv.set: not granted: see allow.kv"},
		{"look-up without a grant", `ctx.list("nodes")`, "", "list: not granted: see allow.lookup"},
		{"another source", `ctx.list("pods")`, "lookup: [nodes]", "list: not granted"},
		{"http without a grant", `ctx.http({url: "https://example.com/"})`, "", "http: not granted: see allow.http"},
		{"another host", `ctx.http({url: "https://example.org/"})`, `http: [{host: "example.com:443"}]`, "http: not granted"},
		{"kv", `ctx.kv.set("a", {b: 1}, {ttlMs: 1000}); return [{data: [ctx.kv.get("a"), ctx.kv.get("c") ?? null, ctx.kv.delete("a"), ctx.kv.delete("a")]}]`, "kv: true", `ok /=[{"b":1},null,true,false]`},
		{"a value that is none", `ctx.kv.set("a", undefined)`, "kv: true", "cannot be written as JSON"},
		{"a time that is none", `ctx.kv.set("a", 1, {ttlMs: "soon"})`, "kv: true", "an argument is not valid"},
		{"a huge key", `ctx.kv.get("k".repeat(1000))`, "kv: true", "an argument is not valid"},
		{"look-ups", `return [{data: [ctx.get("nodes", "", "n1"), ctx.get("nodes", "", "n2") ?? null, ctx.list("nodes").length, ctx.count("nodes")]}]`, "lookup: [nodes]", `ok /=[{"metadata":{"name":"n1"}},null,1,1]`},
		{"caught", `try { ctx.list("x") } catch (e) { return [{data: e.message}] }`, "", `ok /="list: not granted: see allow.lookup"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := one(t, newHost().open(t, source(tt.body, "allow: {"+tt.allow+"}\n"))); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDeterministic shows that the same deltas have the same effect.
func TestDeterministic(t *testing.T) {
	// Guarantee: guest-deterministic
	const body = `return [{data: [Math.random(), Math.random(), Date.now()]}]`
	var all []string
	for range 2 {
		h := newHost().open(t, source(body, ""))
		all = append(all, one(t, h), one(t, h))
	}
	for _, got := range all {
		if got != all[0] {
			t.Errorf("got %s and %s", got, all[0])
		}
	}
	granted := newHost().open(t, source(body, "allow: {random: true, clock: true}\n"))
	if a, b := one(t, granted), one(t, granted); a == b || a == all[0] {
		t.Errorf("with grants: got %s twice", a)
	}
}

func TestConsole(t *testing.T) {
	h := newHost()
	one(t, h.open(t, source(`console.log("a", {b: 1}, 2n); console.warn("careful"); console.error(new Error("bad")); console.debug("hidden")`, "")))
	for _, want := range []string{`level=INFO msg="handler says" from=log text="a {\"b\":1} 2"`, `level=WARN msg="handler says" from=log text=careful`, `level=ERROR msg="handler says" from=log text="Error: bad`} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, h.log)
		}
	}
	if strings.Contains(h.log.String(), "hidden") {
		t.Error("debug lines are logged")
	}
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"no code", "config: {a: 1}", "file is missing"},
		{"both", `{file: a.js, source: "x"}`, "stands beside file"},
		{"empty code", `source: ""`, "is empty"},
		{"no text", `source: [a]`, "must be code, not a list"},
		{"no hash", "{file: a.js, sha256: 12}", "64 hexadecimal digits"},
		{"a hash of code", `{source: "x", sha256: "` + strings.Repeat("a", 64) + `"}`, "is the hash of a file"},
		{"too little memory", "{file: a.js, limits: {memory: 1Mi}}", "at least 4Mi"},
		{"config that is no JSON", "{file: a.js, config: {a: .nan}}", "JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := js.Kind().Check(plugintest.Node(t, tt.config))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("got %v, want one problem with %q", problems, tt.want)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	handler := filepath.Join(dir, "handler.js")
	must.Succeed(t, os.WriteFile(handler, []byte("export default () => [];"), 0o600))
	for _, tt := range []struct{ name, config, want string }{
		{"no file", "file: /nowhere/handler.js", "/nowhere/handler.js cannot be read"},
		{"another content", fmt.Sprintf("{file: %q, sha256: %q}", handler, strings.Repeat("a", 64)), "its content differs from sha256"},
		{"another engine", fmt.Sprintf("{file: %q, engine: %q}", handler, handler), "is not the file quickjs.wasm of the npm package quickjs-wasi 3.6.2"},
		{"no engine", fmt.Sprintf("{file: %q, engine: /nowhere/quickjs.wasm}", handler), "engine /nowhere/quickjs.wasm cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newHost().tryOpen(t, tt.config)
			must.Fail(t, err, tt.want)
		})
	}
}
