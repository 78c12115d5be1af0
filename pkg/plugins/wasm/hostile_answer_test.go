package wasm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// TestHostileAnswers: hostile answers are rejected. TestMalformed tests the fields of an answer one
// by one.
func TestHostileAnswers(t *testing.T) {
	// Guarantee: hostile-guest
	const end = 17 << 16 // of the memory
	event := events(`{"data":1}`)
	after := uint32(4 + 28)
	one := func(r record) module { return answering(encode(event, r)) }
	ret := func(address, size int64) module { return guest(constant(opI64, address<<32|size)) }
	// The guest writes its answer into the input buffer.
	rewrites := guest(
		opGet, 0, constant(opI32, 0), opGet, 1, 0xfc, 11 /* memory.fill */, 0,
		opGet, 0, constant(opI32, -1), 0x36 /* i32.store */, 2, 0,
		constant(opI64, inputAt<<32|64),
	)
	input := guest(opGet, 0, 0xad /* i64.extend_i32_u */, constant(opI64, 32), 0x86 /* i64.shl */, opGet, 1, 0xad, 0x84 /* i64.or */)
	many := answering(encode(strings.Repeat("\x00", 4*0xffff), record{events: 0xffff, emOff: after, emLen: 4 * 0xffff}))
	many.function("rtr_alloc").body = constant(opI32, 12<<16)
	const bad = "malformed answer"
	sufferAll(t, []attack{
		{name: "a verdict that there is not", guest: ret(0, 4), want: bad},
		{name: "a huge verdict", guest: guest(constant(opI64, 0xffffffff)), want: bad},
		{name: "all bits", guest: guest(constant(opI64, -1)), want: "the answer is too long"},
		{name: "an address out of bounds", guest: ret(0x7fffffff, 4), want: bad},
		{name: "a negative address", guest: guest(constant(opI64, -1<<32|100)), want: bad},
		{name: "at the end of memory", guest: ret(end-4, 4), want: ""},
		{name: "over the end of memory", guest: ret(end-4, 5), want: bad},
		{name: "behind the end of memory", guest: ret(end, 4), want: bad},
		{name: "nothing at the end of memory", guest: ret(end, 0), want: bad},
		{name: "no bytes", guest: ret(0x100, 0), want: bad},
		{name: "as long as may be", guest: ret(0x1000, 1<<20), want: ""},
		{name: "longer than may be", guest: ret(0x100, 1<<20+1), want: "limits.output"},
		{name: "2 GiB", guest: ret(0x100, 1<<31), want: "limits.output"},
		{name: "as many records as can be", guest: answering([]byte{0xff, 0xff, 0xff, 0xff}), want: bad},
		{name: "a negative count", guest: answering(append([]byte{0, 0, 0, 0x80}, make([]byte, 28)...)), want: bad},
		{name: "another delta", guest: one(record{idx: 7}), want: bad},
		{name: "a negative delta", guest: one(record{idx: 0xffffffff}), want: bad},
		{name: "an unknown verdict in a record", guest: one(record{verdict: 200}), want: bad},
		{name: "padding", guest: one(record{pad: 1}), want: bad},
		{name: "the longest wait", guest: one(record{verdict: 1, retry: 0xffffffff}), want: "asks for another try"},
		{name: "a message out of bounds", guest: one(record{verdict: 3, msgOff: 0xfffffff0, msgLen: 0x20}), want: bad},
		{name: "the longest message", guest: one(record{verdict: 3, msgLen: 0xffffffff}), want: bad},
		{name: "the record as the message", guest: one(record{verdict: 3, msgOff: 0, msgLen: after}), want: "\uFFFD"},
		{name: "events out of bounds", guest: one(record{events: 1, emOff: 0xfffffffc, emLen: 14}), want: bad},
		{name: "the longest events", guest: one(record{events: 1, emOff: after, emLen: 0xffffffff}), want: bad},
		{name: "more events than there are", guest: one(record{events: 0xffff, emOff: after, emLen: 14}), want: bad},
		{name: "65,535 empty events", guest: many, want: "limits.events"},
		{name: "the record as the events", guest: one(record{events: 1, emOff: 4, emLen: 28}), want: bad},
		{name: "an event that is nested deeply", guest: nested(), want: "event 0 of the guest"},
		{name: "an event of control characters", guest: speaking("{\"data\":\"\x00\x1b\"}"), want: "event 0 of the guest"},
		{name: "an event without data", guest: speaking(`{}`), want: "it has no data"},
		{name: "an empty event", guest: speaking(``), want: "event 0 of the guest"},
		{name: "the input as the answer", guest: input, want: bad},
		{name: "an input that is overwritten", guest: rewrites, want: bad},
	})
}

// speaking returns a guest with one event.
func speaking(text string) module {
	payload := events(text)
	return answering(encode(payload, record{events: 1, emOff: 4 + 28, emLen: uint32(len(payload))}))
}

// nested returns an event that would overflow the stack of a recursive parser.
func nested() module {
	return speaking(`{"data":` + strings.Repeat("[", 60_000) + "}")
}

// TestOverlapping: records that refer to the same events would turn a megabyte into 256.
func TestOverlapping(t *testing.T) {
	const n, size = 7, 300 << 10
	payload := events(`{"data":"` + strings.Repeat("x", size) + `"}`)
	var records []record
	for i := range n {
		records = append(records, record{idx: uint32(i), events: 1, emOff: 4 + n*28, emLen: uint32(len(payload))})
	}
	// The answer has records for its deltas only.
	answer := encode(payload, records...)
	m := guest(constant(opI32, 0x100), opGet, 0, opLoad, 2, 8, 0x36 /* i32.store */, 2, 0, constant(opI64, 0x100<<32|int64(len(answer))))
	m.data = map[uint32][]byte{0x100: answer}
	m.memory = []byte{0, 40}
	m.function("rtr_alloc").body = constant(opI32, 16<<16)
	h := newHost()
	results := h.must(t, h.open(t, moduleYAML(t, m)), plugintest.Deltas(t)...)
	if got := verdicts(results); got != strings.TrimSpace(strings.Repeat("ok ", n)) {
		t.Errorf("got %s: in halves they are short enough", got)
	}
	if len(h.ofGuests()) > 0 {
		t.Errorf("the log is %s", h.log)
	}
	if got := h.ended("answer"); got != 0 {
		t.Errorf("%d guests were replaced", got)
	}
}

// TestHostileAlloc: invalid buffers are rejected.
func TestHostileAlloc(t *testing.T) {
	// Guarantee: hostile-guest
	alloc := func(body ...any) module {
		m := guest(constant(opI64, 0))
		m.function("rtr_alloc").body = code(body...)
		return m
	}
	overItself := alloc(constant(opI32, 0x100))
	overItself.data = map[uint32][]byte{0x100: bytes.Repeat([]byte{1}, 100)}
	// the answer overlaps the input
	overItself.function("rtr_handle").body = constant(opI64, 0x100<<32|100)
	later := alloc(opGet, 0, constant(opI32, 1<<20), opGeU, opIf, i32, constant(opI32, 17<<16-8), 0x05, constant(opI32, inputAt), opEnd)
	sufferAll(t, []attack{
		{name: "nowhere", guest: alloc(constant(opI32, 0)), want: "the guest is out of memory"},
		{name: "unaligned", guest: alloc(constant(opI32, inputAt+1)), want: "divisible by 8"},
		{name: "out of bounds", guest: alloc(constant(opI32, -8)), want: "not within the guest's memory"},
		{name: "over the end", guest: alloc(constant(opI32, 17<<16-8)), want: "not within the guest's memory"},
		{name: "over the end, later", guest: later, want: ""},
		{name: "trap", guest: alloc(opUnreachable), want: "rtr_alloc(4096): the guest trapped"},
		{name: "where the answer is", guest: overItself, want: "malformed answer"},
		{name: "memory that grows meanwhile", guest: alloc(constant(opI32, 4), opMemoryGrow, 0, opDrop, constant(opI32, inputAt)), want: ""},
	})
}

// tree returns a guest in which each function calls the next one twice.
func tree(depth int) module {
	m := guest(opCall, 3, constant(opI64, 0))
	for i := range depth {
		f := function{}
		if i < depth-1 {
			f.body = code(opCall, uleb(4+i), opCall, uleb(4+i))
		}
		m.funcs = append(m.funcs, f)
	}
	return m
}

func mutual() module {
	m := guest(opCall, 3, constant(opI64, 0))
	m.funcs = append(m.funcs, function{body: code(opCall, 4)}, function{body: code(opCall, 3)})
	return m
}

// behindCold returns a guest that calls an endless loop, with a trap behind the call.
func behindCold() module {
	m := guest(opCall, 3, opUnreachable)
	m.funcs = append(m.funcs, function{body: code(opLoop, empty, opBr, 0, opEnd)})
	return m
}

// oneTable adds a table with rtr_handle to a module.
func oneTable(m module) module {
	m.raw = map[byte][]byte{
		4: {1, 0x70, 0, 1},
		9: slices.Concat([]byte{1, 0}, constant(opI32, 0), []byte{opEnd, 1, 2}),
	}
	return m
}

func indirect() module {
	return oneTable(guest(opGet, 0, opGet, 1, constant(opI32, 0), 0x11 /* call_indirect */, 2, 0))
}

func indirectTo(entry int64) module {
	return oneTable(guest(opGet, 0, opGet, 1, constant(opI32, entry), 0x11 /* call_indirect */, 2, 0))
}

// largeFrame returns a recursive guest with many locals that are live across the call.
func largeFrame() module {
	m := guest(opCall, 3, constant(opI64, 0))
	const locals = 5000
	var body []byte
	for i := range locals {
		body = append(body, code(opMemorySize, 0, opSet, uleb(i))...)
	}
	body = append(body, opCall, 3)
	for i := range locals {
		body = append(body, code(opGet, uleb(i), opDrop)...)
	}
	m.funcs = append(m.funcs, function{locals: locals, body: body})
	return m
}

// tableGrow returns a guest that grows its table repeatedly.
func tableGrow(by int64) module {
	return oneTable(guest(opLoop, empty, 0xd0 /* ref.null */, 0x70, constant(opI32, by), 0xfc, 15 /* table.grow */, 0, opDrop, opBr, 0, opEnd, constant(opI64, 0)))
}

// atThird returns a guest that runs code in the third call of each instance.
func atThird(what []byte) module {
	const at = 0x80
	return guest(
		constant(opI32, at), constant(opI32, at), opLoad, 2, 0, constant(opI32, 1), opAdd, 0x36 /* i32.store */, 2, 0,
		constant(opI32, at), opLoad, 2, 0, constant(opI32, 3), opGeU, opIf, empty, what, opEnd, constant(opI64, 0),
	)
}
