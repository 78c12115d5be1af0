package abi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// bytesMemory is the memory of a guest.
type bytesMemory []byte

func (m bytesMemory) Read(offset, n uint32) ([]byte, bool) {
	if uint64(offset)+uint64(n) > uint64(len(m)) {
		return nil, false
	}
	return m[offset:][:n], true
}

// defaults returns the limits of a configuration that sets none.
func defaults() *Limits {
	return &Limits{
		Memory: 64 << 20, Calls: 100_000, Fuel: 75_000_000, InitFuel: 2_000_000_000, Timeout: time.Second, InitTimeout: 5 * time.Second,
		Batch: 256, Input: 1 << 20, Output: 1 << 20, Events: 64, Message: 4 << 10, Log: 100, LogLine: 4 << 10,
	}
}

// edit replaces four bytes of an answer.
func edit(answer string, at int, value uint32) string {
	b := []byte(answer)
	binary.LittleEndian.PutUint32(b[at:], value)
	return string(b)
}

// okAnswer is an answer to at least two deltas: the first fails with a message, the second has an
// event.
func okAnswer() string {
	const event = `{"data":1}`
	b := make([]byte, 4+2*answerSize)
	le := binary.LittleEndian
	le.PutUint32(b, 2)
	first, second := b[4:], b[4+answerSize:]
	first[4] = byte(plugins.Fail)
	le.PutUint32(first[12:], uint32(len(b)))
	le.PutUint32(first[16:], 3)
	le.PutUint32(second, 1)
	le.PutUint16(second[6:], 1)
	le.PutUint32(second[20:], uint32(len(b)+3))
	le.PutUint32(second[24:], uint32(4+len(event)))
	b = append(b, "bad"...)
	b = le.AppendUint32(b, uint32(len(event)))
	return string(append(b, event...))
}

func decode(answer string, n int) ([]plugins.Result, error) {
	mem := bytesMemory("pad." + answer)
	return DecodeAnswer(mem, 4<<32|uint64(len(answer)), n, defaults())
}

func TestMalformed(t *testing.T) {
	// Guarantee: never-succeeds
	ok := okAnswer()
	if results, err := decode(ok, 2); err != nil || results[0].Err.Error() != "bad" || string(results[1].Events[0].Data) != "1" {
		t.Fatalf("got %v, %v", results, err)
	}
	const first, second = 4, 4 + answerSize
	end := uint32(len(ok))
	tests := []struct {
		name, answer string
		deltas       int
	}{
		{"empty", "", 2},
		{"three bytes", "\x00\x00\x00", 2},
		{"more records than deltas", ok, 1},
		{"more records than bytes", edit(ok, 0, 9), 100},
		{"as many records as can be", edit(ok, 0, 0xffffffff), 1 << 20},
		{"idx out of bounds", edit(ok, first, 2), 2},
		{"idx far out of bounds", edit(ok, first, 0xffffffff), 2},
		{"idx twice", edit(ok, second, 0), 2},
		{"verdict", edit(ok, first+4, 4), 2},
		{"padding", edit(ok, first+4, 3|1<<8), 2},
		{"events with a verdict", edit(ok, first+4, 3|1<<16), 2},
		{"message offset", edit(ok, first+12, end), 2},
		{"message offset that overflows", edit(ok, first+12, 0xffffffff), 2},
		{"message length", edit(ok, first+16, end), 2},
		{"message length that overflows", edit(ok, first+16, 0xffffffff), 2},
		{"fewer events", edit(ok, second+4, 0), 2},
		{"more events", edit(ok, second+4, 2<<16), 2},
		{"as many events as can be", edit(ok, second+4, 0xffff<<16), 2},
		{"events offset", edit(ok, second+20, end-1), 2},
		{"events offset that overflows", edit(ok, second+20, 0xffffffff), 2},
		{"events length", edit(ok, second+24, 13), 2},
		{"events length that overflows", edit(ok, second+24, 0xffffffff), 2},
		{"length of an event", edit(ok, second+answerSize+3, 11), 2},
		{"length of an event that overflows", edit(ok, second+answerSize+3, 0xffffffff), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if results, err := decode(tt.answer, tt.deltas); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %v, %v", results, err)
			}
		})
	}
	for name, ret := range map[string]uint64{
		"a verdict that there is not": 4, "a length without an address": 1 << 20,
		"an address out of bounds": 1<<40 | 4, "a length out of bounds": 4<<32 | 1<<20, "all bits": 0xffffffff_00000010,
	} {
		if _, err := DecodeAnswer(bytesMemory(ok), ret, 2, defaults()); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := DecodeAnswer(bytesMemory(ok), 4<<32|1<<20+1, 2, defaults()); !errors.Is(err, ErrTooMuch) {
		t.Errorf("got %v", err)
	}
}

func TestEnvelope(t *testing.T) {
	tests := []struct{ text, want, fails string }{
		{`{"data":{"a":1}}`, `{"a":1}`, ""},
		{` { "data" : null } `, `null`, ""},
		{`{"data":"x","type":"t","subject":"é"}`, `t é "x"`, ""},
		{`{"type":"a\u002fb","data":[]}`, `a/b []`, ""},
		{``, "", "unexpected end"},
		{`{"data":secret}`, "", "invalid JSON"},
		{`{"data":1}x`, "", "text after"},
		{`{"data":1,"data":2}`, "", "twice"},
		{"{\"data\":\"\xff\"}", "", "UTF-8"},
		{`["secret"]`, "", "not a JSON object"},
		{`{"type":"t"}`, "", "no data"},
		{`{"data":1,"type":""}`, "", "type is not a string, or empty"},
		{`{"data":1,"type":5}`, "", "type is not a string, or empty"},
		{`{"data":1,"subject":null}`, "", "subject is not a string, or empty"},
		{`{"data":1,"subject":"a\nb"}`, "", "control character"},
		{`{"data":1,"type":"` + strings.Repeat("x", 5000) + `"}`, "", "at most"},
		{`{"data":1,"secret":2}`, "", "member"},
	}
	for _, tt := range tests {
		e, err := ParseEnvelope(defaults(), tt.text)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, want an error with %q", tt.text, err, tt.fails)
			}
			continue
		}
		got := strings.TrimSpace(strings.TrimSpace(e.Type+" "+e.Subject) + " " + string(e.Data))
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v", tt.text, got, err)
		}
	}
}

// Records that refer to the same events could turn a megabyte into 256.
func TestOverlappingEvents(t *testing.T) {
	const n = 3
	event := `{"data":"` + strings.Repeat("x", 400<<10) + `"}`
	answer := make([]byte, 4+n*answerSize)
	le := binary.LittleEndian
	le.PutUint32(answer, n)
	for i := range n {
		record := answer[4+i*answerSize:]
		le.PutUint32(record, uint32(i))
		le.PutUint16(record[6:], 1)
		le.PutUint32(record[20:], uint32(len(answer)))
		le.PutUint32(record[24:], uint32(4+len(event)))
	}
	answer = append(le.AppendUint32(answer, uint32(len(event))), event...)
	if results, err := decode(string(answer), n); !errors.Is(err, ErrTooMuch) {
		t.Errorf("got %d results: %v", len(results), err)
	}
	if results, err := decode(edit(string(answer), 0, n-1), n); err != nil || len(results[1].Events) != 1 {
		t.Errorf("got %d results: %v", len(results), err)
	}
}

// An invalid event fails only its delta, permanently.
func TestBadEvents(t *testing.T) {
	answer := strings.Replace(okAnswer(), `{"data":1}`, `{"data":x}`, 1)
	results, err := decode(answer, 3)
	must.Succeed(t, err)
	if r := results[1]; r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected || results[2].Verdict != plugins.OK {
		t.Errorf("got %v", results)
	}

	many := make([]byte, 4+answerSize)
	le := binary.LittleEndian
	le.PutUint32(many, 1)
	le.PutUint16(many[4+6:], 64+1)
	le.PutUint32(many[4+20:], uint32(len(many)))
	le.PutUint32(many[4+24:], 4*(64+1))
	many = append(many, make([]byte, 4*(64+1))...)
	results, err = decode(string(many), 1)
	if err != nil || results[0].Verdict != plugins.Fail || !strings.Contains(results[0].Err.Error(), "65 events for one delta, at most 64") {
		t.Errorf("got %v, %v", results, err)
	}
}

func TestLongMessage(t *testing.T) {
	message := strings.Repeat("é", 4096)
	answer := okAnswer() + message
	answer = edit(answer, 4+12, uint32(len(answer)-len(message)))
	answer = edit(answer, 4+16, uint32(len(message)))
	results, err := decode(answer, 2)
	must.Succeed(t, err)
	if got := results[0].Err.Error(); got != strings.Repeat("é", 4096/2-2)+"…" {
		t.Errorf("got %d bytes", len(got))
	}
}

// FuzzAnswer: no answer makes the host panic or accept an invalid result.
func FuzzAnswer(f *testing.F) {
	ok := okAnswer()
	f.Add([]byte(ok), uint64(len(ok)), uint8(2))
	f.Add([]byte(edit(ok, 0, 1)), uint64(len(ok)), uint8(9))
	f.Add([]byte(ok), uint64(1<<32|1), uint8(1))
	f.Add([]byte(ok), uint64(3), uint8(200))
	f.Fuzz(func(t *testing.T, mem []byte, ret uint64, n uint8) {
		for _, ret := range []uint64{ret, 1<<32 | uint64(len(mem)-1)} {
			results, err := DecodeAnswer(bytesMemory(mem), ret, int(n), defaults())
			if err != nil {
				if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooMuch) {
					t.Errorf("an error of no kind: %v", err)
				}
				continue
			}
			if len(results) != int(n) {
				t.Fatalf("%d results for %d deltas", len(results), n)
			}
			for _, r := range results {
				checkFuzzed(t, r)
			}
		}
		_ = InitMessage(bytesMemory(mem), uint32(ret), defaults())
	})
}

func checkFuzzed(t *testing.T, r plugins.Result) {
	t.Helper()
	if failed := r.Verdict == plugins.Retry || r.Verdict == plugins.Fail; r.Verdict > plugins.Fail || failed != (r.Err != nil) {
		t.Errorf("verdict %s with the error %v", r.Verdict, r.Err)
	}
	if len(r.Events) > 64 || len(r.Events) > 0 && r.Verdict != plugins.OK {
		t.Errorf("%d events with the verdict %s", len(r.Events), r.Verdict)
	}
	if r.Err != nil && len(fmt.Sprint(r.Err)) > 3*4096 {
		t.Errorf("an error of %d bytes", len(r.Err.Error()))
	}
	for _, e := range r.Events {
		if !json.Valid(e.Data) {
			t.Errorf("the data is no JSON: %q", e.Data)
		}
	}
}
