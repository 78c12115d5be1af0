package wasm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// catalog is a cache with the same result for all look-ups. It records its queries.
type catalog struct {
	objects []*event.Object

	mu    sync.Mutex
	asked []string
}

var _ plugins.Lookup = (*catalog)(nil)

func (c *catalog) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf(format, args...))
}

func (c *catalog) Lookup(source, index, value string) []*event.Object {
	c.note("lookup %s|%s|%s", source, index, value)
	return c.objects
}

func (c *catalog) Count(source, index, value string) int {
	c.note("count %s|%s|%s", source, index, value)
	return len(c.objects)
}

func (c *catalog) Get(source, namespace, name string) *event.Object {
	c.note("get %s|%s|%s", source, namespace, name)
	if len(c.objects) == 0 {
		return nil
	}
	return c.objects[0]
}

const twoObjects = `{"objects":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`

func two(t *testing.T) *catalog {
	t.Helper()
	return &catalog{objects: []*event.Object{plugintest.Object(t, `{"metadata":{"name":"a"}}`), plugintest.Object(t, `{"metadata":{"name":"b"}}`)}}
}

// counted returns the expected queries: a list is counted first, because its fuel is charged
// before.
func counted(asked ...string) (all []string) {
	for _, question := range asked {
		if of, ok := strings.CutPrefix(question, "lookup "); ok {
			all = append(all, "count "+of)
		}
		all = append(all, question)
	}
	return all
}

func TestLookup(t *testing.T) {
	// Guarantee: guest-grants
	tests := []struct {
		request string
		answer  string // empty: only the status counts
		status  int64
		asked   string
	}{
		{`{"index":"pods.byNode","key":"n1"}`, twoObjects, 0, "lookup pods|byNode|n1"},
		{`{"index":"pods.byNode","key":"n1","count":true}`, `{"count":2}`, 0, "count pods|byNode|n1"},
		{` {"count":false, "index":"pods.byNode", "key":"n\u0031"} `, twoObjects, 0, "lookup pods|byNode|n1"},
		{`{"index":"pods.byNode"}`, twoObjects, 0, "lookup pods|byNode|"},
		{`{"index":"nodes.anything","key":"x"}`, twoObjects, 0, "lookup nodes|anything|x"},
		{`{"list":"nodes"}`, twoObjects, 0, "lookup nodes||"},
		{`{"list":"nodes","count":true}`, `{"count":2}`, 0, "count nodes||"},
		{`{"get":"nodes","name":"a"}`, `{"objects":[{"metadata":{"name":"a"}}]}`, 0, "get nodes||a"},
		{`{"get":"nodes","namespace":"default","name":"a"}`, `{"objects":[{"metadata":{"name":"a"}}]}`, 0, "get nodes|default|a"},

		{`{"index":"pods.byUser","key":"n1"}`, "", -2, ""},
		{`{"get":"pods","name":"a"}`, "", -2, ""},
		{`{"list":"pods"}`, "", -2, ""},
		{`{"list":"pods.byNode"}`, "", -2, ""},
		{`{"index":"secrets.byNode","key":"n1"}`, "", -2, ""},
		{`{"list":"secrets"}`, "", -2, ""},
		{`{"list":""}`, "", -4, ""},
		{`{"index":"pods","key":"n1"}`, "", -4, ""},
		{`{"index":"pods.","key":"n1"}`, "", -4, ""},
		{`{"index":"pods.byNode","key":1}`, "", -4, ""},
		{`{"index":"pods.byNode","name":"a"}`, "", -4, ""},
		{`{"get":"nodes","name":"a","count":true}`, "", -4, ""},
		{`{"get":"nodes","list":"nodes"}`, "", -4, ""},
		{`{"index":"pods.byNode","index":"nodes.x"}`, "", -4, ""},
		{`{"index":"pods.byNode","watch":true}`, "", -4, ""},
		{`["pods"]`, "", -4, ""},
		{`{`, "", -4, ""},
	}
	for _, tt := range tests {
		t.Run(tt.request, func(t *testing.T) {
			h, c := newHost(), two(t)
			h.env.Lookup = c
			size, want := int64(len(tt.request)), tt.status
			steps := []step{}
			if tt.answer != "" {
				want = int64(len(tt.answer))
				steps = append(steps,
					call("lookup", want, atKey, size, 0, 0), // it does not fit
					call("lookup", want, atKey, size, 0, want-1),
					call("lookup", want, atKey, size, atBuffer, want),
					call("emit", 0, 0, atBuffer-8, want+9)) // {"data":…}
			} else {
				steps = append(steps, call("lookup", want, atKey, size, atBuffer, 1000))
			}
			m := script(map[uint32]string{atKey: tt.request, atBuffer - 8: `{"data":`, atBuffer + uint32(len(tt.answer)): "}"}, steps...)
			results := run(t, h.open(t, withRights(t, m, "allow: {lookup: [pods.byNode, nodes]}")), first(t))
			if got := strings.Join(data(results), ""); got != tt.answer {
				t.Errorf("got %s, want %s", got, tt.answer)
			}
			if want := counted(tt.asked); tt.asked != "" && !slices.Equal(c.asked, want) || tt.asked == "" && c.asked != nil {
				t.Errorf("the cache was asked for %q, want %q, once", c.asked, want)
			}
		})
	}
}

// Only an answer that did not fit is kept, for the same request in the same call.
func TestLookupAgain(t *testing.T) {
	const list, get = `{"list":"nodes"}`, `{"get":"nodes","name":"a"}`
	h, c := newHost(), two(t)
	h.env.Lookup = c
	all := func(n int64) []step {
		return []step{
			// the second queries again
			call("lookup", 65, atKey, 16, 0, 0), call("lookup", 65, atKey, 16, atBuffer, 65), call("lookup", 65, atKey, 16, atBuffer, 65),
			call("lookup", 65, atKey, 16, 0, 0), call("lookup", 39, atValue, int64(len(get)), atBuffer, 100), call("lookup", 65, atKey, 16, atBuffer, 65),
			call("lookup", 65, atKey, 16, 0, n), // not queried again in this call
		}
	}
	handler := h.open(t, withRights(t, script(map[uint32]string{atKey: list, atValue: get}, all(0)...), "allow: {lookup: [nodes]}"))
	run(t, handler, first(t))
	run(t, handler, first(t))
	once := []string{"lookup nodes||", "lookup nodes||", "lookup nodes||", "get nodes||a", "lookup nodes||", "lookup nodes||"}
	if want := counted(slices.Concat(once, once)...); !slices.Equal(c.asked, want) {
		t.Errorf("asked %q, want %q", c.asked, want)
	}
}

func TestLookupTooLong(t *testing.T) {
	h, c := newHost(), two(t)
	for range 9 {
		c.objects = append(c.objects, plugintest.Object(t, `{"metadata":{"name":"`+strings.Repeat("x", 1<<20)+`"}}`))
	}
	h.env.Lookup = c
	run(t, h.open(t, withRights(t, script(map[uint32]string{atKey: `{"list":"nodes"}`}, call("lookup", -3, atKey, 16, 0, 0)), "allow: {lookup: [nodes]}")), first(t))
}

// During its start an instance can neither look up nor emit, but can use its store.
func TestInit(t *testing.T) {
	for name, end := range map[string]int64{"starts": 0, "fails": 3} {
		t.Run(name, func(t *testing.T) {
			h, c := newHost(), two(t)
			h.env.Lookup = c
			m := script(map[uint32]string{atKey: `{"list":"nodes"}`, atValue: value})
			body := m.steps(call("lookup", -2, atKey, 16, 0, 0), call("emit", -4, 0, atValue, int64(len(value))), call("now_ns", 0),
				call("kv_set", 0, atKey, 3, atValue, 5, 0), call("kv_get", 5, atKey, 3, 0, 0))
			// The steps fail with an i64, and rtr_init returns none.
			m.funcs = append(m.funcs, function{results: []byte{i64}, body: append(body, constant(opI64, end)...)},
				function{name: "rtr_init", params: []byte{i32, i32}, results: []byte{i32}})
			m.function("rtr_init").body = code(opCall, uleb(len(m.imports)+3), 0xa7 /* i32.wrap_i64 */)
			handler, err := h.tryOpen(t, withRights(t, m, "allow: {kv: true, lookup: [nodes]}"))
			_, written := h.env.KV.Get(`{"l`)
			if (err == nil) != (end == 0) || written != (end == 0) || err != nil && !strings.Contains(err.Error(), "it returned 3") {
				t.Errorf("written %v, error %v", written, err)
			}
			if handler != nil {
				must.Report(t, handler.Close(t.Context()))
			}
		})
	}
}

type local = plugins.Lookup

// remote is a cache in another process.
type remote struct {
	local

	err    error
	deltas int // of the last query
}

// Ask implements plugins.RemoteLookup.
func (r *remote) Ask(ctx context.Context, q plugins.LookupQuery) (objects []*event.Object, count int, err error) {
	if r.deltas = len(q.Deltas); r.err != nil {
		return nil, 0, r.err
	}
	return plugins.Ask(ctx, r.local, q)
}

// TestRemoteLookup: a call with a look-up that has no answer is postponed, also if the guest does
// not notice or traps. One whose answer is too large gets the status of a local one.
func TestRemoteLookup(t *testing.T) {
	gone := plugins.Postpone(errors.New("no leader"), time.Second)
	for name, tt := range map[string]struct {
		err      error
		expected int64
		verdict  plugins.Verdict
	}{
		"answer":       {nil, 65, plugins.OK},
		"too large":    {plugins.Reject(errors.New("9 MiB")), -3, plugins.OK},
		"no answer":    {gone, -5, plugins.Retry},
		"and it traps": {gone, 65, plugins.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			h, cache := newHost(), &remote{local: two(t), err: tt.err}
			h.env.Lookup = cache
			m := script(map[uint32]string{atKey: `{"list":"nodes"}`}, call("lookup", tt.expected, atKey, 16, 0, 0))
			handler := h.open(t, withRights(t, m, "allow: {lookup: [nodes]}"))
			for range 20 { // more than the circuit breaker takes
				results, err := handler.Handle(t.Context(), first(t))
				must.Succeed(t, err)
				if r := results[0]; r.Verdict != tt.verdict || cache.deltas != 1 || r.Verdict == plugins.Retry && (plugins.ClassOf(r.Err) != plugins.Postponed || plugins.RetryAfter(r.Err) != time.Second) {
					t.Fatalf("got %v %v with %d deltas", r.Verdict, r.Err, cache.deltas)
				}
			}
		})
	}
}
