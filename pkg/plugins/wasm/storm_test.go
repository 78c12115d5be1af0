package wasm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// storm is a guest that repeats one host call. Its arguments are constant, except the four bytes at
// 0x100, which count.
type storm struct {
	name  string
	f     function
	args  []int64
	allow string // "kv: true"
}

// The addresses of a storm's data: a counter, JSON texts, 1,024 empty pieces, and a long text
// without and with line ends.
const (
	stormKey    = 0x100
	stormText   = 0x400
	stormPieces = 0x1000
	stormLong   = 0x20000
	stormLines  = 0x60000
	stormRoom   = 0xa0000
)

func wasi(name string, params ...byte) function {
	return function{module: "wasi_snapshot_preview1", name: name, params: params, results: []byte{i32}}
}

// storms returns at least one storm for each function that a guest can import and that has an
// effect.
func storms() []storm {
	text := func(i int) int64 { return stormText + int64(i)*0x80 }
	size := func(i int) int64 { return int64(len(stormTexts()[i])) }
	const kv, lookup, http = "kv: true", "lookup: [pods]", `http: [{host: "127.0.0.1:9", scheme: http, private: true, rate: 100000}]`
	return []storm{
		{"log", named("log"), []int64{1, stormKey, 4}, ""},
		{"log of long lines", named("log"), []int64{1, stormLong, 1 << 18}, ""},
		{"log of line ends", named("log"), []int64{1, stormLines, 1 << 18}, ""},
		{"log that nobody reads", named("log"), []int64{0, stormLong, 1 << 18}, ""},
		{"config_get", named("config_get"), []int64{0, 0, stormRoom, 1 << 16}, ""},
		{"config_get of a key", named("config_get"), []int64{stormKey, 4, stormRoom, 1 << 16}, ""},
		{"now_ns", named("now_ns"), nil, ""},
		{"now_ns of the real clock", named("now_ns"), nil, "clock: true"},
		{"random", named("random"), []int64{stormRoom, 8}, ""},
		{"much random", named("random"), []int64{stormRoom, 1 << 18}, ""},
		{"really random", named("random"), []int64{stormRoom, 8}, "random: true"},
		{"much that is really random", named("random"), []int64{stormRoom, 1 << 18}, "random: true"},
		{"emit", named("emit"), []int64{0, text(0), size(0)}, ""},
		{"emit nothing", named("emit"), []int64{0, 0, 0}, ""},
		{"emit what is no JSON", named("emit"), []int64{0, stormLong, 1 << 18}, ""},
		{"emit too much", named("emit"), []int64{0, stormLong, 1 << 30}, ""},
		{"field", named("field"), []int64{0, 0, text(6), size(6)}, ""},
		{"field of no object", named("field"), []int64{0, 1, text(6), size(6)}, ""},
		{"field that is not there", named("field"), []int64{0, 0, stormKey, 4}, ""},
		{"field of a long path", named("field"), []int64{0, 0, stormLong, 1 << 10}, ""},
		{"kv_get", named("kv_get"), []int64{stormKey, 4, stormRoom, 100}, kv},
		{"kv_get of long keys", named("kv_get"), []int64{stormKey, 512, stormRoom, 100}, kv},
		{"kv_set", named("kv_set"), []int64{stormKey, 4, stormKey, 4, 0}, kv},
		{"kv_set of one key", named("kv_set"), []int64{stormText, 4, stormKey, 4, 1000}, kv},
		{"kv_set of long values", named("kv_set"), []int64{stormText, 512, stormLong, 1 << 18, 1000}, kv},
		{"kv_del", named("kv_del"), []int64{stormKey, 4}, kv},
		{"lookup by an index", named("lookup"), []int64{text(1), size(1), stormRoom, 1 << 16}, lookup},
		{"lookup of a list", named("lookup"), []int64{text(2), size(2), stormRoom, 1 << 16}, lookup},
		{"lookup of one", named("lookup"), []int64{text(3), size(3), stormRoom, 1 << 16}, lookup},
		{"lookup of no JSON", named("lookup"), []int64{stormLong, 4096, stormRoom, 1 << 16}, lookup},
		{"lookup of nothing", named("lookup"), []int64{0, 0, stormRoom, 1 << 16}, lookup},
		{"http", named("http"), []int64{text(4), size(4), stormRoom, 1 << 16}, http},
		{"http to somebody else", named("http"), []int64{text(5), size(5), stormRoom, 1 << 16}, http},
		{"http of no JSON", named("http"), []int64{stormLong, 1 << 18, stormRoom, 1 << 16}, http},
		{"http of nothing", named("http"), []int64{0, 0, stormRoom, 1 << 16}, http},
		{"fd_write", wasi("fd_write", i32, i32, i32, i32), []int64{1, stormPieces, 1, 0}, ""},
		{"fd_write of empty pieces", wasi("fd_write", i32, i32, i32, i32), []int64{1, stormPieces, 1024, 0}, ""},
		{"fd_write of a line without end", wasi("fd_write", i32, i32, i32, i32), []int64{1, stormPieces + 0x2000, 1, 0}, ""},
		{"fd_write of line ends", wasi("fd_write", i32, i32, i32, i32), []int64{2, stormPieces + 0x2008, 1, 0}, ""},
		{"fd_write of too many pieces", wasi("fd_write", i32, i32, i32, i32), []int64{1, stormPieces, 1 << 30, 0}, ""},
		{"fd_read", wasi("fd_read", i32, i32, i32, i32), []int64{0, stormPieces, 1 << 30, 0}, ""},
		{"random_get", wasi("random_get", i32, i32), []int64{stormRoom, 1 << 18}, ""},
		{"poll_oneoff", wasi("poll_oneoff", i32, i32, i32, i32), []int64{stormLong, stormRoom, 1024, 0}, ""},
		{"poll_oneoff of too many", wasi("poll_oneoff", i32, i32, i32, i32), []int64{stormLong, stormRoom, -1, 0}, ""},
		{"clock_time_get", wasi("clock_time_get", i32, i64, i32), []int64{1, 0, 0}, "clock: true"},
		{"clock_res_get", wasi("clock_res_get", i32, i32), []int64{1, 0}, ""},
		{"path_open", wasi("path_open", i32, i32, i32, i32, i32, i64, i64, i32, i32), []int64{3, 0, 0, -1, 0, 0, 0, 0, 0}, ""},
		{"fd_readdir", wasi("fd_readdir", i32, i32, i32, i64, i32), []int64{1, 0, -1, 0, 0}, ""},
		{"sock_send", wasi("sock_send", i32, i32, i32, i32, i32), []int64{1, 0, -1, 0, 0}, ""},
		{"args_sizes_get", wasi("args_sizes_get", i32, i32), []int64{0, 0}, ""},
		{"sched_yield", wasi("sched_yield"), nil, ""},
	}
}

func stormTexts() []string {
	return []string{
		`{"data":1}`, `{"index":"pods.byNode","key":"n1"}`, `{"list":"pods"}`, `{"get":"pods","namespace":"default","name":"a"}`,
		`{"url":"http://127.0.0.1:9/"}`, `{"url":"https://10.0.0.1/","headers":{"a":"b"}}`,
		"metadata.uid",
	}
}

// guest assembles the storm. It ends when its fuel is used up, or after a number of calls.
func (s storm) guest(calls int64) module {
	var args []byte
	for i, a := range s.args {
		args = append(args, constant(map[byte]byte{i32: opI32, i64: opI64}[s.f.params[i]], a)...)
	}
	m := guest(
		constant(opI32, calls), opSet, 2, opLoop, empty,
		constant(opI32, stormKey), opGet, 2, 0x36 /* i32.store */, 2, 0,
		args, opCall, 0, opDrop,
		opGet, 2, constant(opI32, -1), opAdd, 0x22 /* local.tee */, 2, opBrIf, 0, opEnd, constant(opI64, 0),
	)
	m.imports = []function{s.f}
	m.function("rtr_alloc").body = constant(opI32, stormRoom+1<<18)
	m.memory = []byte{0, 24}
	m.data = map[uint32][]byte{
		stormPieces + 0x2000: binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, stormLong), 1<<18),
		stormPieces + 0x2008: binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, stormLines), 1<<18),
		stormLong:            bytes.Repeat([]byte("x"), 1<<18),
		stormLines:           bytes.Repeat([]byte("\n"), 1<<18),
	}
	for i, text := range stormTexts() {
		m.data[uint32(stormText+i*0x80)] = []byte(text)
	}
	return m
}

func (s storm) config(tb testing.TB, calls int64, limits string) string {
	tb.Helper()
	return fmt.Sprintf("{module: %q, config: {a: %q}, allow: {%s}, limits: {%s}}", s.guest(calls).write(tb), strings.Repeat("x", 1000), s.allow, limits)
}

// BenchmarkStopped measures the CPU time of a guest that repeats a host call until the default fuel
// is used up. For comparison it includes a loop, and a pointer chase through 32 MiB, which
// limits.timeout may stop first.
func BenchmarkStopped(b *testing.B) {
	pods := &catalog{}
	for i := range 1000 {
		pods.objects = append(pods.objects, plugintest.Pod(b, fmt.Sprint("p", i), 1, 10))
	}
	stop := func(name, config string) {
		b.Run(name, func(b *testing.B) {
			h := newHost()
			h.env.Lookup = pods
			handler, err := h.tryOpen(b, config)
			must.Succeed(b, err)
			defer handler.Close(b.Context())
			d := plugintest.Deltas(b)[:1]
			cpu := time.Duration(0)
			for b.Loop() {
				before := cpuTime()
				r, err := handler.Handle(b.Context(), []*event.Delta{d[0]})
				if err != nil || plugins.ClassOf(r[0].Err) == plugins.Postponed {
					b.Skip("the circuit breaker opened")
				}
				cpu += cpuTime() - before
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/call")
		})
	}
	stop("a loop", fmt.Sprintf("module: %q", guest(forEver(), constant(opI64, 0)).write(b)))
	stop("pointer chase", fmt.Sprintf("module: %q", chase(1<<19, 0).write(b)))
	all := []storm{{name: "nothing", f: wasi("sched_yield")}}
	for _, s := range slices.Concat(all, storms()) {
		stop(s.name, s.config(b, 0, "calls: 1"))
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
