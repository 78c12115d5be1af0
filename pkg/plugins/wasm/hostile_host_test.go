package wasm_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestStorms: a guest that calls one host function without end is stopped.
func TestStorms(t *testing.T) {
	// Guarantee: hostile-guest
	var attacks []attack
	for _, s := range storms() {
		attacks = append(attacks, attack{name: s.name, guest: s.guest(0), config: fmt.Sprintf("allow: {%s}", s.allow), want: "raise limits.fuel"})
	}
	sufferAll(t, attacks)
}

// TestCharged: work of the host uses fuel. The amounts make storms as expensive as loops, see
// BenchmarkStopped.
func TestCharged(t *testing.T) {
	const calls = 5
	least := map[string]int{ // per call; an answer that does not fit is looked up once
		"log of long lines": 16 * 4096, "log of line ends": 16 * 4096, "config_get of a key": 1000,
		"much random": 1 << 18, "random_get": 1 << 18, "much that is really random": 2 << 18,
		"emit nothing": 200, "emit what is no JSON": 8 << 18, "kv_get of long keys": 256, "kv_set of long values": 1 << 16,
		"lookup of a list": (1000 + 500*1000) / calls, "lookup of one": 1000, "lookup of no JSON": 5000, "lookup of nothing": 1000,
		"http": 45_000, "http to somebody else": 5000, "http of no JSON": 5000 + 1<<18, "http of nothing": 5000,
		"fd_write of empty pieces": 20 * 1024, "fd_write of a line without end": 16 << 18, "fd_write of line ends": 16 << 18,
		"poll_oneoff": 10 * 1024,
	}
	pods := &catalog{}
	for i := range 1000 {
		pods.objects = append(pods.objects, plugintest.Pod(t, fmt.Sprint("p", i), 1, 10))
	}
	found := 0
	for _, s := range storms() {
		if least[s.name] == 0 {
			continue
		}
		found++
		h := newHost()
		h.env.Lookup = pods
		handler := h.open(t, s.config(t, calls, "fuel: 1G, timeout: 1h"))
		before := h.fuel()
		run(t, handler, first(t))
		if used := int(h.fuel() - before); used < calls*least[s.name] {
			t.Errorf("%s: %d fuel a call, want %d", s.name, used/calls, least[s.name])
		}
	}
	if found != len(least) {
		t.Errorf("%d of %d were found", found, len(least))
	}
}

// A list that exceeds the fuel of a delta is not made.
func TestLookupIsPaidBefore(t *testing.T) {
	h, c := newHost(), &catalog{objects: slices.Repeat(two(t).objects, 50_000)}
	h.env.Lookup = c
	m := script(map[uint32]string{atKey: `{"list":"nodes"}`}, call("lookup", 0, atKey, 16, 0, 0))
	r := h.must(t, h.open(t, withRights(t, m, "allow: {lookup: [nodes]}")), first(t)...)
	if !strings.Contains(fmt.Sprint(r[0].Err), "raise limits.fuel") || slices.Contains(c.asked, "lookup nodes||") {
		t.Errorf("got %v, asked %q", r[0].Err, c.asked)
	}
}

// pointed returns the functions of WASI and rtr_v1 that take addresses.
func pointed() []function {
	return append(hostFunctions(),
		wasi("fd_write", i32, i32, i32, i32), wasi("fd_read", i32, i32, i32, i32), wasi("random_get", i32, i32),
		wasi("poll_oneoff", i32, i32, i32, i32), wasi("clock_time_get", i32, i64, i32), wasi("clock_res_get", i32, i32),
		wasi("fd_fdstat_get", i32, i32), wasi("args_get", i32, i32), wasi("args_sizes_get", i32, i32), wasi("environ_sizes_get", i32, i32),
		wasi("path_open", i32, i32, i32, i32, i32, i64, i64, i32, i32), wasi("fd_readdir", i32, i32, i32, i64, i32), wasi("fd_seek", i32, i64, i32, i32),
	)
}

// garbage returns a guest that calls a function repeatedly, with an invalid value for each argument
// in turn, and then for all.
func garbage(f function) module {
	values := []int64{0, 1, 2, -1, -8, 1 << 31, 1<<31 - 1, 17<<16 - 1, 17 << 16, inputAt, 1 << 20, 5000}
	var body []byte
	one := func(arg func(i int) int64) {
		for i := range f.params {
			body = append(body, constant(map[byte]byte{i32: opI32, i64: opI64}[f.params[i]], int64(int32(arg(i))))...)
		}
		body = code(body, opCall, 0, opDrop)
	}
	for _, v := range values {
		one(func(int) int64 { return v })
		for _, rest := range []int64{0, 1, 8, 0x100} {
			for bad := range f.params {
				one(func(i int) int64 {
					if i == bad {
						return v
					}
					return rest
				})
			}
		}
	}
	m := guest(body, constant(opI64, 0))
	m.imports = []function{f}
	m.data = map[uint32][]byte{0x100: []byte(`{"data":1}`)}
	return m
}

// everything contains all grants for guests that call with garbage.
const everything = `allow: {kv: true, lookup: [pods], http: [{host: "127.0.0.1:9", scheme: http, private: true}], clock: true, random: true}`

// TestGarbage calls each host function with invalid addresses, lengths and numbers.
func TestGarbage(t *testing.T) {
	// Guarantee: hostile-guest
	var attacks []attack
	for _, f := range pointed() {
		attacks = append(attacks, attack{name: f.name, guest: garbage(f), config: everything, limits: "fuel: 1G"})
	}
	sufferAll(t, attacks)
}

// TestFloods: the log and the store of a guest are limited.
func TestFloods(t *testing.T) {
	// Guarantee: hostile-guest
	twice := func(name string, args ...int64) module {
		s := storm{f: named(name), args: args}
		return s.guest(200)
	}
	exit := func(code int64) module {
		m := guest(constant(opI32, code), opCall, 0, opUnreachable)
		m.imports = []function{{module: "wasi_snapshot_preview1", name: "proc_exit", params: []byte{i32}}}
		return m
	}
	full := script(kvData(), call("kv_set", -3, atKey, 3, 0, 2000, 0), call("kv_set", -3, atKey, 3, 0, 1<<20, 0))
	sufferAll(t, []attack{
		{name: "exit with 0", guest: exit(0), want: "the guest exited with code 0"},
		{name: "exit with 1", guest: exit(1), want: "the guest exited with code 1"},
		{name: "exit with -1", guest: exit(-1), want: "the guest exited with code 4294967295"},
		{name: "lines", guest: printing(1, 1000, "x\n"), want: ""},
		{name: "line ends", guest: printing(2, 100, strings.Repeat("\n", 100)), limits: "fuel: 75M", want: ""},
		{name: "no line end", guest: printing(1, 200, strings.Repeat("x", 200)), want: ""},
		{name: "messages", guest: twice("log", 3, stormKey, 4), want: ""},
		{name: "keys until there is no room", guest: twice("kv_set", stormKey, 4, stormLong, 1<<10, 0), config: "allow: {kv: true}", limits: "kv: 16Ki", want: ""},
		{name: "a value that is too large", guest: full, config: "allow: {kv: true}", limits: "kv: 1Ki", want: ""},
		{name: "events until there are enough", guest: twice("emit", 0, stormText, 10), want: ""},
	})
}

// FuzzHostCalls lets a guest call host functions with the functions and arguments of the input.
func FuzzHostCalls(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Add([]byte("\x05\x83\x81\x90\x84\x06\x83\x81\x83\x85\x00\x0a\x01\x90\x81\x84"))
	f.Add([]byte("\x08\x88\x84\x90\x82\x09\x89\x85\x90\x82\x04\x80\x8a\x86"))
	f.Add([]byte("0\xeb")) // an address beyond the largest signed number
	all := pointed()
	// The most frequent arguments: valid addresses and lengths.
	known := []int64{0, 1, 3, 8, 0x100, 0x200, 0x400, 0x500, -1, 17 << 16, 17<<16 - 1, 1 << 31, 16, 10, 37, 1 << 20}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 1000 {
			return
		}
		m := guest()
		m.imports = all
		m.data = map[uint32][]byte{
			0x100: []byte("key"), 0x200: binary.LittleEndian.AppendUint32([]byte{0, 1, 0, 0}, 3), 0x400: []byte(`{"list":"pods"} {"data":1}`),
			0x500: []byte(`{"url":"http://127.0.0.1:9/","body":""}`),
		}
		var body []byte
		next := func() (c byte) {
			if len(input) > 0 {
				c, input = input[0], input[1:]
			}
			return c
		}
		for len(input) > 0 {
			at := int(next()) % len(all)
			for _, p := range all[at].params {
				v := int64(next())
				if v >= 0x80 {
					v = known[v%int64(len(known))]
				} else if v >= 0x70 {
					v = int64(int32(uint32(next())<<24 | uint32(next())<<16 | uint32(next())<<8 | uint32(next())))
				}
				op := opI64
				if p == i32 {
					op, v = opI32, int64(int32(v))
				}
				body = append(body, constant(byte(op), v)...)
			}
			body = code(body, opCall, uleb(at), opDrop)
		}
		m.function("rtr_handle").body = code(body, constant(opI64, 0))
		h := newHost()
		h.env.Lookup = &catalog{objects: []*event.Object{plugintest.Object(t, `{"metadata":{"name":"a"}}`)}}
		handler := h.open(t, withRights(t, m, everything))
		for _, r := range h.must(t, handler, plugintest.Deltas(t)...) {
			if r.Verdict != plugins.OK && r.Verdict != plugins.Fail {
				t.Errorf("got %s: %v", r.Verdict, r.Err)
			}
			if r.Err != nil && !strings.Contains(r.Err.Error(), "raise limits.fuel") {
				t.Errorf("the guest only calls: %v", r.Err)
			}
		}
	})
}

// TestCloseWhileRunning closes a handler while two of its guests wait in a host function. They
// continue afterwards and write to their memory, so nothing may be unmapped before. The last one to
// return frees everything.
func TestCloseWhileRunning(t *testing.T) {
	// Guarantee: guest-freed
	asked, answers := make(chan struct{}), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-answers
	})
	h := newHost()
	h.env.Workers = 2
	m := withRights(t, asking(`{"url":"`+s.URL+`"}`, 0), s.allow("")+", limits: {timeout: 10m, instances: 2}")
	handler, err := h.tryOpen(t, m)
	must.Succeed(t, err)
	type answer struct {
		results []plugins.Result
		err     error
	}
	done := make(chan answer)
	for range 2 {
		go func() {
			results, err := handler.Handle(t.Context(), first(t))
			done <- answer{results, err}
		}()
		<-asked
	}
	must.Report(t, handler.Close(context.WithoutCancel(t.Context())))
	if !strings.Contains(h.log.String(), "closed while a guest runs") {
		t.Errorf("the log is %s", h.log)
	}
	for i := range 2 {
		if i == 1 && h.memory() == 0 {
			t.Error("a guest that runs has no memory")
		}
		answers <- struct{}{}
		if a := <-done; a.err != nil || len(a.results) != 1 || a.results[0].Verdict != plugins.OK || len(a.results[0].Events) != 1 {
			t.Errorf("guest %d: %v %v", i, a.results, a.err)
		}
	}
	if _, err := handler.Handle(t.Context(), first(t)); err == nil {
		t.Error("a closed handler handles")
	}
	checkGone(t, h)
}
