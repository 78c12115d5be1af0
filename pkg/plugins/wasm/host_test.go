package wasm_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// inOneSecond runs a test in a bubble, so that all its log lines are in one second.
func inOneSecond(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// calling returns a guest that calls a host function with constants, and fails the batch if the
// result is not the wanted one.
func calling(f function, want int64, args ...int64) module {
	var body []byte
	for _, a := range args {
		body = append(body, constant(opI32, a)...)
	}
	m := guest(body, opCall, 0, constant(opI32, want), opEq, opIf, i64, constant(opI64, 0), 0x05 /* else */, constant(opI64, 3), opEnd)
	m.imports = []function{f}
	return m
}

func hostLog() function {
	return function{module: "rtr_v1", name: "log", params: []byte{i32, i32, i32}, results: []byte{i32}}
}

func hostConfig() function {
	return function{module: "rtr_v1", name: "config_get", params: []byte{i32, i32, i32, i32}, results: []byte{i32}}
}

func TestHostFunctions(t *testing.T) {
	tests := []struct {
		name  string
		guest module
		log   string // part of the log
	}{
		{"log", calling(hostLog(), 0, 1, 0x100, 5), `level=INFO msg="handler says" from=log text=hello`},
		{"log a warning", calling(hostLog(), 0, 2, 0x100, 5), `level=WARN msg="handler says"`},
		{"log an error", calling(hostLog(), 0, 3, 0x100, 5), `level=ERROR msg="handler says"`},
		{"log nothing that is not logged", calling(hostLog(), 0, 0, 0x100, 5), ""},
		{"log without a level", calling(hostLog(), -4, 4, 0x100, 5), ""},
		{"log out of bounds", calling(hostLog(), -4, 1, -10, 100), ""},
		{"config", calling(hostConfig(), 15, 0, 0, 0x200, 100), ""},
		{"config of a key", calling(hostConfig(), 1, 0x110, 9, 0x200, 100), ""},
		{"config of no key", calling(hostConfig(), -1, 0x110, 8, 0x200, 100), ""},
		{"config, how long it is", calling(hostConfig(), 15, 0, 0, 0, 0), ""},
		{"config, not to be written", calling(hostConfig(), -4, 0, 0, -5, 100), ""},
		{"config, key out of bounds", calling(hostConfig(), -4, -5, 100, 0x200, 100), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			tt.guest.data = map[uint32][]byte{0x100: []byte("hello"), 0x110: []byte("threshold")}
			handler := h.open(t, fmt.Sprintf("{module: %q, config: {threshold: 3}}", tt.guest.write(t)))
			results, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:1])
			if err != nil || verdicts(results) != "ok" {
				t.Errorf("the function returned something else: %v", err)
			}
			if !strings.Contains(h.log.String(), tt.log) || tt.log == "" && strings.Contains(h.log.String(), "handler says") {
				t.Errorf("the log is %q, want %q", h.log, tt.log)
			}
		})
	}
}

func TestNow(t *testing.T) {
	// Answers 0 if the time is after 2026, and 3 if not.
	m := guest(opCall, 0, constant(opI64, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()), 0x55, /* i64.gt_s */
		opIf, i64, constant(opI64, 0), 0x05, constant(opI64, 3), opEnd)
	m.imports = []function{{module: "rtr_v1", name: "now_ns", results: []byte{i64}}}
	if got := verdicts(handle(t, newHost().open(t, moduleYAML(t, m)), plugintest.Deltas(t)[:1])); got != "ok" {
		t.Errorf("got %s", got)
	}
}

// Without a configuration the guest reads null.
func TestNoConfig(t *testing.T) {
	m := calling(hostConfig(), 4, 0, 0, 0x200, 100)
	if got := verdicts(handle(t, newHost().open(t, moduleYAML(t, m)), plugintest.Deltas(t)[:1])); got != "ok" {
		t.Errorf("got %s", got)
	}
}

// printing returns a guest that writes a text to stdout or stderr n times per call.
func printing(file int, n int64, text string) module {
	m := guest(
		opLoop, empty,
		constant(opI32, int64(file)), constant(opI32, 0x80), constant(opI32, 1), constant(opI32, 0x90), opCall, 0, opDrop,
		opGet, 2, constant(opI32, 1), opAdd, opSet, 2, opGet, 2, constant(opI32, n), 0x49 /* i32.lt_u */, opBrIf, 0, opEnd,
		constant(opI64, 0),
	)
	m.imports = []function{{module: "wasi_snapshot_preview1", name: "fd_write", params: []byte{i32, i32, i32, i32}, results: []byte{i32}}}
	vector := binary.LittleEndian.AppendUint32([]byte{0x00, 0x01, 0, 0}, uint32(len(text)))
	m.data = map[uint32][]byte{0x80: vector, 0x100: []byte(text)}
	return m
}

func TestPrint(t *testing.T) {
	tests := []struct {
		name  string
		guest module
		want  []string // lines of the log
	}{
		{"stdout", printing(1, 1, "one\ntwo\r\n\n"), []string{"level=INFO msg=\"handler says\" from=stdout text=one", "level=INFO msg=\"handler says\" from=stdout text=two"}},
		{"stderr", printing(2, 1, "panic: oh\n"), []string{`level=WARN msg="handler says" from=stderr text="panic: oh"`}},
		{"a line in pieces", printing(1, 3, "ab"), []string{"level=INFO msg=\"handler says\" from=stdout text=ababab"}},
		{"not UTF-8", printing(1, 1, "a\xff\n"), []string{"level=INFO msg=\"handler says\" from=stdout text=\"a\uFFFD\""}},
		{"a long line", printing(1, 3, strings.Repeat("x", 2000)), []string{"level=INFO msg=\"handler says\" from=stdout text=" + strings.Repeat("x", 4096-len("…")) + "…"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost()
			t.Run("", func(t *testing.T) { // closes the handler, which logs the incomplete line
				if _, err := h.open(t, moduleYAML(t, tt.guest)).Handle(t.Context(), plugintest.Deltas(t)[:1]); err != nil {
					t.Error(err)
				}
			})
			lines := strings.Split(strings.TrimSpace(h.ofGuests()), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("got %d lines: %s", len(lines), h.log)
			}
			for i, line := range lines {
				if !strings.HasSuffix(line, tt.want[i]) {
					t.Errorf("got  %s\nwant %s", line, tt.want[i])
				}
			}
		})
	}
}

// At most a hundred lines of a guest are logged per second, and the number of suppressed lines is
// logged.
func TestLogFlood(t *testing.T) {
	inOneSecond(t, func(t *testing.T) {
		h := newHost()
		handler, err := h.tryOpen(t, moduleYAML(t, printing(1, 1000, "x\n")))
		must.Succeed(t, err)
		for range 2 {
			if _, err := handler.Handle(t.Context(), plugintest.Deltas(t)[:1]); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // of the bubble's clock
		}
		must.Report(t, handler.Close(t.Context()))
		if n := strings.Count(h.log.String(), "from=stdout"); n != 200 {
			t.Errorf("%d lines in two seconds", n)
		}
		if n := strings.Count(h.log.String(), "lines=900 limit_per_second=100"); n != 2 {
			t.Errorf("it is said %d times that lines were left out", n)
		}
	})
}
