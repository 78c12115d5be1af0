package wasm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// answerThen returns a guest that calls host functions and then returns an answer.
func answerThen(texts map[uint32]string, answer []byte, all ...step) module {
	const place = 0x8000
	m := scriptThen(texts, constant(opI64, place<<32|int64(len(answer))), all...)
	m.data[place] = answer
	return m
}

func TestEmit(t *testing.T) {
	texts := map[uint32]string{0x200: `{"data":1}`, 0x300: `{"data":2,"type":"a.b","subject":"c"}`, 0x400: `{"dat":1}`}
	answered := events(`{"data":3}`)
	m := answerThen(texts, encode(answered, record{idx: 1, events: 1, emOff: 32, emLen: uint32(len(answered))}),
		call("emit", 0, 1, 0x200, 10), call("emit", 0, 0, 0x300, 37), call("emit", 0, 1, 0x300, 37), call("emit", -4, 2, 0x200, 10), call("emit", -4, 0, 0x400, 9))
	handler := newHost().open(t, moduleYAML(t, m))
	for range 2 { // the second call has no effect of the first
		results := run(t, handler, plugintest.Deltas(t)[:2])
		var got []string
		for _, r := range results {
			for _, e := range r.Events {
				got = append(got, fmt.Sprintf("%s %s %s", e.Data, e.Type, e.Subject))
			}
			got = append(got, "|")
		}
		if want := []string{"2 a.b c", "|", "1  ", "2 a.b c", "3  ", "|"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A delta that is not ok has no events.
func TestEmitNotOK(t *testing.T) {
	texts := map[uint32]string{0x200: `{"data":1}`}
	for name, verdict := range map[string]byte{"retry": 1, "drop": 2, "fail": 3} {
		t.Run(name, func(t *testing.T) {
			m := answerThen(texts, encode("", record{idx: 0, verdict: verdict}), call("emit", 0, 0, 0x200, 10), call("emit", 0, 1, 0x200, 10))
			results, err := newHost().open(t, moduleYAML(t, m)).Handle(t.Context(), plugintest.Deltas(t)[:2])
			if err != nil || verdicts(results) != name+" ok" || len(results[0].Events) != 0 || len(results[1].Events) != 1 {
				t.Errorf("got %v %v", results, err)
			}
		})
	}
}

func TestEmitQuota(t *testing.T) {
	texts := map[uint32]string{0x200: `{"data":1}`}
	many := make([]step, 64)
	for i := range many {
		many[i] = call("emit", 0, 0, 0x200, 10)
	}
	t.Run("64 events", func(t *testing.T) {
		m := script(texts, append(many, call("emit", -3, 0, 0x200, 10))...)
		if got := run(t, newHost().open(t, moduleYAML(t, m)), first(t)); len(got[0].Events) != 64 {
			t.Errorf("%d events", len(got[0].Events))
		}
	})
	t.Run("64 events and one more in the answer", func(t *testing.T) {
		answered := events(`{"data":3}`)
		m := answerThen(texts, encode(answered, record{events: 1, emOff: 32, emLen: uint32(len(answered))}), many...)
		results, err := newHost().open(t, moduleYAML(t, m)).Handle(t.Context(), first(t))
		if err != nil || plugins.ClassOf(results[0].Err) != plugins.Rejected || !strings.Contains(results[0].Err.Error(), "65 events for one delta, at most 64") {
			t.Errorf("got %v %v", results, err)
		}
	})
}

// large returns an event of n bytes.
func large(n int) string { return `{"data":"` + strings.Repeat("x", n-11) + `"}` }

// Too many bytes of one delta are rejected. Too many bytes of a batch halve it.
func TestEmitVolume(t *testing.T) {
	const size = 600 << 10
	texts := map[uint32]string{0x20000: large(size)}
	grown := func(m module) string {
		m.memory = []byte{0, 32}
		m.function("rtr_alloc").body = constant(opI32, 0x100000)
		return moduleYAML(t, m)
	}
	alone := script(texts, call("emit", 0, 0, 0x20000, size), call("emit", -3, 0, 0x20000, size))
	if got := run(t, newHost().open(t, grown(alone)), first(t)); len(got[0].Events) != 1 {
		t.Errorf("%d events", len(got[0].Events))
	}
	// In a batch of at least two deltas, the guest emits for the first and the last.
	last := guest(constant(opI32, 0), constant(opI32, 0x20000), constant(opI32, size), opCall, 0, opDrop,
		opGet, 0, opLoad, 2, 8, constant(opI32, 1), 0x6b /* i32.sub */, constant(opI32, 0x20000), constant(opI32, size), opCall, 0, opDrop, constant(opI64, 0))
	last.imports = []function{named("emit")}
	last.data = map[uint32][]byte{0x20000: []byte(texts[0x20000])}
	results := run(t, newHost().open(t, grown(last)), plugintest.Deltas(t)[:2])
	if len(results[0].Events) != 1 || len(results[1].Events) != 1 {
		t.Errorf("%d and %d events: the batch was not halved", len(results[0].Events), len(results[1].Events))
	}
}
