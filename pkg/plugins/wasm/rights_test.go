package wasm_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm"
	"github.com/deltarouter/deltarouter/test/must"
)

// allRights contains all grants, for tests of other subjects.
const allRights = `allow: {kv: true, lookup: [pods, nodes.byName], http: [{host: "127.0.0.1:1", scheme: http}]}`

// TestGrants: a module that imports a function without a grant is rejected.
func TestGrants(t *testing.T) {
	// Guarantee: guest-grants
	all := func(names ...string) module {
		m := guest(constant(opI64, 0))
		for _, name := range names {
			m.imports = append(m.imports, named(name))
		}
		return m
	}
	tests := []struct {
		name, allow string
		guest       module
		want        string // empty: it starts
	}{
		{"free", "{}", all("log", "config_get", "now_ns", "random", "emit", "field"), ""},
		{"everything", allRights[len("allow: "):], all("kv_get", "kv_set", "kv_del", "lookup", "http"), ""},
		{"kv_get", "{}", all("kv_get"), "it imports rtr_v1.kv_get: add allow: {kv: true}"},
		{"kv_set", "{kv: false}", all("kv_set"), "it imports rtr_v1.kv_set: add allow: {kv: true}"},
		{"kv_del", "{clock: true, random: true}", all("kv_del"), "it imports rtr_v1.kv_del: add allow: {kv: true}"},
		{"lookup", "{kv: true}", all("kv_get", "lookup"), "it imports rtr_v1.lookup: add allow: {lookup: [source.index]}"},
		{"http", "{kv: true}", all("http"), `it imports rtr_v1.http: add allow: {http: [{host: "name:443"}]}`},
		{
			"several", "{}", all("kv_get", "http", "kv_set"),
			`it imports rtr_v1.kv_get, rtr_v1.kv_set: add allow: {kv: true}; it imports rtr_v1.http: add allow: {http: [{host: "name:443"}]}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			handler, err := h.tryOpen(t, withRights(t, tt.guest, "allow: "+tt.allow))
			if tt.want == "" {
				must.Succeed(t, err)
				must.Report(t, handler.Close(t.Context()))
				return
			}
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant … %s", err, tt.want)
			}
		})
	}
}

func TestAllowProblems(t *testing.T) {
	tests := []struct{ name, allow, want string }{
		{"an unknown right", "{exec: true}", "unknown key"},
		{"a lookup of no index", "{lookup: [pods.]}", "must be the name of a source, or source.index"},
		{"a lookup with two dots", "{lookup: [a.b.c]}", "must be the name of a source, or source.index"},
		{"no host", "{http: [{rate: 5}]}", "host is missing"},
		{"a URL", `{http: [{host: "https://example.com"}]}`, "without a scheme, a path or a wildcard"},
		{"a wildcard", `{http: [{host: "*.example.com:443"}]}`, "without a scheme, a path or a wildcard"},
		{"a host twice", `{http: [{host: "example.com"}, {host: "EXAMPLE.com:443"}]}`, "example.com:443 occurs twice"},
		{"a header that is none", `{http: [{host: "example.com", headers: {"a b": x}}]}`, "is not a header name"},
		{"a header of the router", `{http: [{host: "example.com", headers: {host: x}}]}`, "is set by the router itself"},
		{"a method in lower case", `{http: [{host: "example.com", methods: [get]}]}`, "must be one of GET, HEAD"},
		{"a path with dots", `{http: [{host: "example.com", paths: [/a/../b]}]}`, "must be a path such as"},
		{"a path in the middle of a word", `{http: [{host: "example.com", paths: [/a*]}]}`, "must be a path such as"},
		{"no path", `{http: [{host: "example.com", paths: [a]}]}`, "must be a path such as"},
		{"no rate", `{http: [{host: "example.com", rate: 0}]}`, "rate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems := wasm.Kind().Check(plugintest.Node(t, "{module: a.wasm, allow: "+tt.allow+"}"))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) || problems[0].Line != 1 {
				t.Errorf("got %v, want one problem with %q", problems, tt.want)
			}
		})
	}
}

func TestLookupGrants(t *testing.T) {
	var got []string
	for _, g := range wasm.Kind().(plugins.LookupRequester).Lookups(plugintest.Node(t, "{module: a.wasm, allow: {lookup: [pods.byNode, nodes]}}")) {
		got = append(got, g.Source+"|"+g.Index+"|"+g.Node.Path())
	}
	if want := []string{"pods|byNode|allow.lookup[0]", "nodes||allow.lookup[1]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Invalid addresses and lengths.
func TestGarbagePointers(t *testing.T) {
	const outside, end = 0x7fff0000, 18 * 0x10000
	data := map[uint32]string{0x100: "key", 0x200: `{"data":1}`, 0x300: `{"get":"pods","name":"a"}`, 0x400: `{"url":"http://127.0.0.1:1/"}`}
	steps := []step{
		call("random", -4, outside, 4), call("random", -4, end-3, 4), call("random", -4, -1, -1), call("random", 0, 0, 0),
		call("emit", -4, 0, outside, 10), call("emit", -4, 1, 0x200, 10), call("emit", -4, -1, 0x200, 10), call("emit", -3, 0, 0x200, -1),
		call("emit", -4, 0, 0x200, 9), call("emit", -4, 0, 0x200, 0), call("emit", -4, 0, end-5, 10),
		call("field", -4, 0, 0, outside, 3), call("field", -4, 0, 0, 0x100, -1), call("field", -4, 0, 0, 0x100, 1025), call("field", -1, 0, 0, 0x100, 1024),
		call("field", -4, 1, 0, 0x100, 3), call("field", -4, -1, 0, 0x100, 3), call("field", -4, 0, 2, 0x100, 3), call("field", -4, 0, -1, 0x100, 3),
		call("field", -1, 0, 0, 0x100, 3), call("field", -1, 0, 1, 0x100, 3), call("field", -1, 0, 0, 0, 0), call("field", -4, 0, 0, end-2, 3),
		call("kv_get", -4, outside, 3, 0x500, 10), call("kv_get", -4, 0x100, -1, 0x500, 10), call("kv_get", -4, 0x100, 0, 0x500, 10),
		call("kv_get", -4, 0x100, 513, 0x500, 10), call("kv_get", -4, end-1, 3, 0x500, 10),
		call("kv_set", -4, outside, 3, 0x100, 3, 0), call("kv_set", -4, 0x100, 3, outside, 3, 0), call("kv_set", -4, 0x100, 3, 0x100, -1, 0),
		call("kv_set", -4, 0x100, 3, 0x100, 3, -1), call("kv_set", -4, 0x100, 0, 0x100, 3, 0), call("kv_set", 0, 0x100, 3, 0x100, 3, 1<<62),
		call("kv_get", -4, 0x100, 3, outside, 10), call("kv_get", -4, 0x100, 3, end-2, 3), call("kv_get", 3, 0x100, 3, outside, 2),
		call("kv_del", -4, outside, 3), call("kv_del", -4, 0x100, -1),
		call("lookup", -4, outside, 25, 0x500, 99), call("lookup", -4, 0x300, -1, 0x500, 99), call("lookup", -4, 0x300, 24, 0x500, 99),
		call("lookup", -4, 0x300, 25, outside, 99), call("lookup", -4, 0x300, 0, 0x500, 99), call("lookup", 14, 0x300, 25, outside, 13),
		call("http", -4, outside, 28, 0x500, 99), call("http", -3, 0x400, -1, 0x500, 99), call("http", -4, 0x400, 27, 0x500, 99),
		call("http", -4, 0x400, 28, outside, 999), call("http", -4, 0x400, 0, 0x500, 99),
		call("log", -4, 0, outside, 1), call("config_get", -4, outside, 1, 0x500, 9), call("config_get", -4, 0, 0, outside, 9),
	}
	h := newHost()
	handler := h.open(t, withRights(t, script(data, steps...), allRights))
	results, err := handler.Handle(t.Context(), first(t))
	if err != nil || results[0].Verdict != plugins.OK {
		var failed int
		if _, scanErr := fmt.Sscanf(lastWord(results[0].Err), "%d", &failed); scanErr == nil && failed >= wrong && failed-wrong < len(steps) {
			t.Fatalf("another result: step %+v", steps[failed-wrong])
		}
		t.Fatal(err, results)
	}
}

func lastWord(err error) string {
	if err == nil {
		return ""
	}
	words := strings.Fields(err.Error())
	return words[len(words)-1]
}

// A host function returns for any arguments.
func TestRandomArguments(t *testing.T) {
	interesting := []int64{0, 1, -1, 3, 25, 0x100, 0x7fffffff, -0x80000000, 18*0x10000 - 1, 18 * 0x10000, 4096, 1 << 20}
	numbers := rand.New(rand.NewPCG(1, 2))
	for _, f := range hostFunctions() {
		m := guest()
		m.imports = []function{f}
		var body []byte
		for range 2000 {
			for _, p := range f.params {
				a := interesting[numbers.IntN(len(interesting))]
				body = append(body, constant(map[byte]byte{i32: opI32, i64: opI64}[p], a)...)
			}
			body = code(body, opCall, 0, opDrop)
		}
		m.function("rtr_handle").body = append(body, constant(opI64, 0)...)
		t.Run(f.name, func(t *testing.T) {
			run(t, newHost().open(t, withRights(t, m, allRights+", limits: {fuel: 1G}")), first(t))
		})
	}
}

const (
	atKey, atValue, atOther, atBuffer = 0x100, 0x200, 0x300, 0x1000
	value                             = `{"data":"kept"}`
)

func kvData() map[uint32]string {
	return map[uint32]string{atKey: "key", atValue: value, atOther: "other"}
}

func TestKV(t *testing.T) {
	h := newHost()
	handler := h.open(t, withRights(t, script(kvData(),
		call("kv_get", -1, atKey, 3, atBuffer, 100),
		call("kv_del", -1, atKey, 3),
		call("kv_set", 0, atKey, 3, atValue, int64(len(value)), 0),
		call("kv_get", int64(len(value)), atKey, 3, atBuffer, 3), // the length of the value
		call("emit", -4, 0, atBuffer, int64(len(value))),         // the buffer is unchanged
		call("kv_get", int64(len(value)), atKey, 3, atBuffer, 100),
		call("emit", 0, 0, atBuffer, int64(len(value))),
		call("kv_set", 0, atOther, 5, 0, 0, 0), // empty
		call("kv_get", 0, atOther, 5, atBuffer, 0),
		call("kv_del", 0, atOther, 5),
		call("kv_get", -1, atOther, 5, atBuffer, 0),
		call("kv_del", -1, atOther, 5),
	), "allow: {kv: true}"))
	if got := data(run(t, handler, first(t))); !slices.Equal(got, []string{`"kept"`}) {
		t.Errorf("got %q", got)
	}
	if v, ok := h.env.KV.Get("key"); !ok || string(v) != value {
		t.Errorf("kept is %q", v)
	}
	if _, ok := h.env.KV.Get("other"); ok {
		t.Error("what was deleted is there")
	}
}

// A value that a call wrote is visible to the next call, in another instance and in the next
// handler too.
func TestKVStays(t *testing.T) {
	h := newHost()
	set := script(kvData(), call("kv_set", 0, atKey, 3, atValue, int64(len(value)), 0))
	get := script(kvData(), call("kv_get", int64(len(value)), atKey, 3, atBuffer, 0), call("kv_del", 0, atKey, 3), call("kv_get", -1, atKey, 3, 0, 0))
	for _, m := range []module{set, get} {
		handler := h.mustOpen(t, withRights(t, m, "allow: {kv: true}"))
		run(t, handler, first(t))
		must.Report(t, handler.Close(t.Context()))
	}
	if h.env.KV.Size() != 0 {
		t.Error("it was deleted")
	}
}

func TestKVTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.env.KV = kv.New(timer.Real(), false)
		set := h.mustOpen(t, withRights(t, script(kvData(), call("kv_set", 0, atKey, 3, atValue, 5, 1000)), "allow: {kv: true}"))
		there := h.mustOpen(t, withRights(t, script(kvData(), call("kv_get", 5, atKey, 3, 0, 0)), "allow: {kv: true}"))
		gone := h.mustOpen(t, withRights(t, script(kvData(), call("kv_get", -1, atKey, 3, 0, 0)), "allow: {kv: true}"))
		run(t, set, first(t))
		time.Sleep(999 * time.Millisecond)
		run(t, there, first(t))
		time.Sleep(time.Millisecond)
		run(t, gone, first(t))
		for _, handler := range []plugins.Handler{set, there, gone} {
			must.Report(t, handler.Close(t.Context()))
		}
	})
}

func TestKVQuota(t *testing.T) {
	// Guarantee: guest-grants
	h := newHost()
	const half = 512 - 64 - 3 // with a key of three bytes
	m := script(map[uint32]string{atKey: "key", 0x110: "two"},
		call("kv_set", 0, atKey, 3, atBuffer, half, 0),
		call("kv_set", -3, 0x110, 3, atBuffer, half+1, 0),
		call("kv_set", 0, 0x110, 3, atBuffer, half, 0),
		call("kv_set", -3, atKey, 2, atBuffer, 0, 0),
		call("kv_set", -3, atKey, 3, atBuffer, 1<<20, 0),
		call("kv_set", 0, atKey, 3, atBuffer, half-1, 0), // less
		call("kv_set", -3, atKey, 3, atBuffer, half+1, 0),
		call("kv_del", 0, atKey, 3),
		call("kv_set", 0, atKey, 2, atBuffer, half, 0),
		call("kv_del", 0, atKey, 2),
		call("kv_del", 0, 0x110, 3),
		call("kv_set", 0, 0x110, 3, atBuffer, half, 0),
	)
	handler := h.open(t, withRights(t, m, "allow: {kv: true}, limits: {kv: 1Ki}"))
	run(t, handler, first(t))
	run(t, handler, first(t)) // the values of the first call count, and are overwritten
	if h.env.KV.Size() != 512 {
		t.Errorf("%d bytes are kept", h.env.KV.Size())
	}
}

// A call fails if other calls used up the space, and is repeated.
func TestKVRace(t *testing.T) {
	h := newHost()
	h.env.KV = &narrow{Store: kv.New(timer.Real(), false)}
	m := script(kvData(), call("kv_set", 0, atKey, 3, atValue, 5, 0))
	results, err := h.open(t, withRights(t, m, "allow: {kv: true}")).Handle(t.Context(), first(t))
	if err != nil || results[0].Verdict != plugins.Fail || plugins.ClassOf(results[0].Err) == plugins.Rejected ||
		!strings.Contains(fmt.Sprint(results[0].Err), "the values of the guest cannot be stored: limits.kv is reached") {
		t.Errorf("got %v %v", results, err)
	}
}

// narrow is a store whose space disappears before the commit.
type narrow struct{ *kv.Store }

func (narrow) Commit([]plugins.KVWrite, int64) error { return plugins.ErrKVFull }

// A failed call has no effect.
func TestNothingIsLeft(t *testing.T) {
	// Guarantee: call-atomic, trap-loses-event
	steps := []step{
		call("kv_set", 0, atKey, 3, atValue, int64(len(value)), 0), call("emit", 0, 0, atValue, int64(len(value))),
		call("kv_get", int64(len(value)), atKey, 3, 0, 0), call("kv_del", 0, atOther, 5),
	}
	exit := function{module: "wasi_snapshot_preview1", name: "proc_exit", params: []byte{i32}}
	for name, end := range map[string][]byte{
		"trap":               {opUnreachable},
		"a malformed answer": constant(opI64, 1<<40|1),
		"no such verdict":    constant(opI64, 9),
		"a long answer":      constant(opI64, 1<<32|0x7fffffff),
		"exit":               code(constant(opI32, 0), opCall, 3, constant(opI64, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			must.Succeed(t, h.env.KV.Commit([]plugins.KVWrite{{Key: "other", Value: []byte("1")}}, 1000))
			m := scriptThen(kvData(), end, steps...)
			m.imports = append(m.imports[:3:3], append([]function{exit}, m.imports[3:]...)...)
			m.function("rtr_handle").body = append(moved(m, steps), end...)
			results, err := h.open(t, withRights(t, m, "allow: {kv: true}")).Handle(t.Context(), first(t))
			if err != nil || results[0].Verdict != plugins.Fail || len(results[0].Events) != 0 {
				t.Errorf("got %v %v", results, err)
			}
			if strings.Contains(fmt.Sprint(results[0].Err), fmt.Sprint(wrong/10)) {
				t.Error(results[0].Err)
			}
			if _, ok := h.env.KV.Get("key"); ok {
				t.Error("it was written")
			}
			if _, ok := h.env.KV.Get("other"); !ok {
				t.Error("it was deleted")
			}
		})
	}
}

// moved compiles the steps again for the present imports of m.
func moved(m module, steps []step) []byte { return m.steps(steps...) }

// A batch that traps has no effect. The half without a trap has its effect once.
func TestBisected(t *testing.T) {
	// Guarantee: call-atomic, never-succeeds
	h := newHost()
	m := script(kvData(), call("kv_set", 0, atKey, 3, atValue, int64(len(value)), 0), call("emit", 0, 0, atValue, int64(len(value))))
	body := m.function("rtr_handle").body
	m.function("rtr_handle").body = append(body[:len(body)-2:len(body)-2], onDeleted(opUnreachable)...)
	handler := h.open(t, withRights(t, m, "allow: {kv: true}"))
	deltas := plugintest.Deltas(t)
	deleted := deltas[slices.IndexFunc(deltas, func(d *event.Delta) bool { return d.Op == event.Deleted })]

	results, err := handler.Handle(t.Context(), []*event.Delta{deleted, deleted})
	if err != nil || verdicts(results) != "fail fail" || h.env.KV.Size() != 0 {
		t.Errorf("got %v %v, %d bytes", results, err, h.env.KV.Size())
	}
	results, err = handler.Handle(t.Context(), []*event.Delta{deleted, deltas[0]})
	if err != nil || verdicts(results) != "fail ok" || len(results[0].Events) != 0 || len(results[1].Events) != 1 || h.env.KV.Size() == 0 {
		t.Errorf("got %v %v, %d bytes", results, err, h.env.KV.Size())
	}
}

// TestFiles: the module is a file of the configuration.
func TestFiles(t *testing.T) {
	node, problems := conf.ParseNode("config.yaml", []byte("module: /plugins/a.wasm"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := wasm.Kind().(plugins.FileReader).Files(node); !slices.Equal(got, []string{"/plugins/a.wasm"}) {
		t.Errorf("got %q", got)
	}
}

// TestHTTPGrants: a grant may be restricted to methods and paths. No encoding of a path escapes
// them.
func TestHTTPGrants(t *testing.T) {
	// Guarantee: guest-grants
	var mu sync.Mutex
	var got []string
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Method+" "+r.URL.EscapedPath())
	})
	rights := s.allow(`, methods: [GET, POST], paths: ["/v1/tickets", "/v1/public/*", "/a b"], headers: {authorization: secret}`)
	allowed := []string{"GET /v1/tickets", "POST /v1/tickets", "GET /v1/public/x", "GET /v1/public/x/y/", "GET /v1/public/%C3%A4", "GET /a%20b"}
	for _, request := range append(slices.Clone(allowed), "GET /v1/tickets?all=1") {
		method, path, _ := strings.Cut(request, " ")
		if a := ask(t, rights, post(t, map[string]any{"method": method, "url": s.URL + path})); a.Status != http.StatusOK {
			t.Errorf("%s: %+v", request, a)
		}
	}
	if want := append(slices.Clone(allowed), "GET /v1/tickets"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, request := range []string{
		"DELETE /v1/tickets", "HEAD /v1/tickets", "GET ", "GET /", "GET /v1/tickets/", "GET /v1/tickets/1", "GET /v1/ticketsx", "GET /V1/tickets", "GET /v1",
		"GET /v1/public/../admin", "GET /v1/public/%2e%2e/admin", "GET /v1/public/..%2fadmin", "GET /v1/public/..;/admin", "GET /v1/public/%2e%2e%3b/admin",
		"GET /v1/public/..%5cadmin", "GET /v1/public//x", "GET //v1/tickets", "GET /v1/public/./x", "GET /v1/public/%252e%252e/admin", "GET /v1/public/;x/y",
		"GET /v1/public/x%00", "GET /v1/%74ickets",
	} {
		method, path, _ := strings.Cut(request, " ")
		t.Run(request, func(t *testing.T) {
			refuse(t, -2, rights, post(t, map[string]any{"method": method, "url": s.URL + path}))
		})
	}
	if len(got) != len(allowed)+1 {
		t.Errorf("got %q", got)
	}
}
