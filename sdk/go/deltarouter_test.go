package deltarouter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestOp(t *testing.T) {
	for op := Added; op <= Sync; op++ {
		if got, ok := ParseOp(op.String()); !ok || got != op {
			t.Errorf("%s is parsed as %s", op, got)
		}
	}
	if _, ok := ParseOp("gone"); ok || Op(9).String() != "op(9)" {
		t.Error("an op that there is not")
	}
}

// TestIdentity: the strings of an identity, which share memory, are those of the batch, and keep
// their values when the memory of the batch is used again.
func TestIdentity(t *testing.T) {
	type identity struct{ namespace, name, uid, version string }
	for _, want := range []identity{{}, {"shop", "web-0", "0f4e", "12"}, {"", "node-1", "77", "3"}, {"shop", "web-0", "", ""}, {"", "", "", "é"}} {
		batch := [][]byte{[]byte(want.namespace), []byte(want.name), []byte(want.uid), []byte(want.version)}
		var d Delta
		d.identify(batch[0], batch[1], batch[2], batch[3])
		for _, field := range batch {
			clear(field)
		}
		if got := (identity{d.Namespace, d.Name, d.UID, d.ResourceVersion}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	type settings struct{ Threshold int }
	for _, tt := range []struct {
		json string
		want int // -1: an error
	}{{"", 5}, {"null", 5}, {"{}", 5}, {`{"threshold":3}`, 3}, {`{"treshold":3}`, -1}, {`{"threshold":"3"}`, -1}, {"[", -1}} {
		SetConfig([]byte(tt.json))
		c := settings{Threshold: 5}
		err := Config(&c)
		if (err != nil) != (tt.want == -1) || err == nil && c.Threshold != tt.want {
			t.Errorf("%s: got %d, %v", tt.json, c.Threshold, err)
		}
	}
}

func TestStart(t *testing.T) {
	defer func() { plugin.setup, plugin.handle = nil, nil }()
	if err := start(nil); !errors.Is(err, errNoHandler) {
		t.Errorf("nothing registered: %v", err)
	}
	Handle(nil)
	if err := start(nil); !errors.Is(err, errNoHandler) {
		t.Errorf("nil registered: %v", err)
	}
	Setup(func() (Handler, error) { panic("oh") })
	if err := start(nil); err == nil || err.Error() != "panic: oh" {
		t.Errorf("got %v", err)
	}
	Handle(func(Delta) ([]Event, error) { return nil, nil })
	if err := start([]byte(`{"a":1}`)); err != nil || plugin.handle == nil || string(plugin.config) != `{"a":1}` {
		t.Errorf("got %v", err)
	}
}

// input makes a batch of deltas with a name and an object only.
func input(names ...string) []byte {
	le := binary.LittleEndian
	b := make([]byte, headerSize+recordSize*len(names))
	le.PutUint32(b, magic)
	le.PutUint32(b[8:], uint32(len(names)))
	for i, name := range names {
		rec := headerSize + recordSize*i
		b[rec+8] = byte(Updated)
		object := `{"name":"` + name + `"}`
		le.PutUint32(b[rec+12:], uint32(len(b)))
		le.PutUint32(b[rec+16:], uint32(len(object)))
		b = append(b, object...)
		at := len(b)
		b = append(b, name...)
		le.PutUint32(b[rec+28:], uint32(len(b)))
		b = le.AppendUint32(b, metaName+1) // an older host has no more fields
		b = append(b, make([]byte, 8*metaName)...)
		b = le.AppendUint32(b, uint32(at))
		b = le.AppendUint32(b, uint32(len(name)))
	}
	return b
}

// judged is the answer about one delta.
type judged struct {
	verdict byte
	after   uint32
	message string
	events  []string
}

// read decodes an answer.
func read(t *testing.T, a []byte) map[uint32]judged {
	t.Helper()
	le := binary.LittleEndian
	all := map[uint32]judged{}
	for k := range int(le.Uint32(a)) {
		rec := a[4+answerSize*k:]
		j := judged{verdict: rec[4], after: le.Uint32(rec[8:]), message: string(piece(a, rec[12:]))}
		emitted := piece(a, rec[20:])
		for range le.Uint16(rec[6:]) {
			n := le.Uint32(emitted)
			j.events = append(j.events, string(emitted[4:4+n]))
			emitted = emitted[4+n:]
		}
		if len(emitted) != 0 {
			t.Errorf("%d bytes behind the events", len(emitted))
		}
		all[le.Uint32(rec)] = j
	}
	return all
}

func TestServe(t *testing.T) {
	panics := 0
	s := server{
		logf: func(d Delta, reason any) {
			if d.Name != "panic" || reason != "oh" {
				t.Errorf("%s: %v", d.Name, reason)
			}
			panics++
		},
		handle: func(d Delta) ([]Event, error) {
			if string(d.Object) != `{"name":"`+d.Name+`"}` || d.Op != Updated || d.OldObject != nil || !d.Seen.IsZero() {
				t.Errorf("got %+v", d)
			}
			switch d.Name {
			case "events":
				return []Event{{Data: 1}, {Type: "t", Subject: "<s>", Data: []byte(`{"a": 1}`)}}, nil
			case "retry":
				return []Event{{Data: 1}}, fmt.Errorf("not %w", Retry(errors.New("now"), 2*time.Second))
			case "drop":
				return nil, ErrDrop
			case "fail":
				return nil, errors.New("bad")
			case "panic":
				panic("oh")
			case "unfit":
				return []Event{{Data: 1}, {Data: func() {}}}, nil
			}
			return nil, nil
		},
	}
	for range 3 { // the buffers are reused
		answer, ok := s.serve(input("ok", "events", "retry", "drop", "fail", "panic", "unfit", "ok", "events"))
		if !ok {
			t.Fatal("no batch")
		}
		got := read(t, answer)
		events := []string{`{"data":1}`, `{"type":"t","subject":"<s>","data":{"a":1}}`}
		want := map[uint32]judged{
			1: {verdictOK, 0, "", events},
			2: {verdictRetry, 2000, "not now", nil},
			3: {verdictDrop, 0, ErrDrop.Error(), nil},
			4: {verdictFail, 0, "bad", nil},
			5: {verdictFail, 0, errPanic.Error(), nil},
			6: {verdictFail, 0, "event data: json: unsupported type: func()", nil},
			8: {verdictOK, 0, "", events},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
	}
	if panics != 3 {
		t.Errorf("%d panics logged", panics)
	}
	if answer, ok := s.serve(input("ok", "ok")); !ok || len(answer) != 0 {
		t.Errorf("if all are ok the answer is %q", answer)
	}
	for _, bad := range [][]byte{nil, []byte("RTR1"), input("ok")[:40], make([]byte, 100)} {
		if _, ok := s.serve(bad); ok {
			t.Errorf("%q is taken for a batch", bad)
		}
	}
}

func TestLongMessage(t *testing.T) {
	if _, _, message := judge(errors.New(strings.Repeat("x", 9999))); len(message) != maxMessage {
		t.Errorf("a message of %d bytes", len(message))
	}
	if _, after, _ := judge(Retry(errors.New("x"), -time.Second)); after != 0 {
		t.Errorf("retry after %d ms", after)
	}
	if _, after, _ := judge(Retry(errors.New("x"), 1<<62)); after != 1<<32-1 {
		t.Errorf("retry after %d ms", after)
	}
}

func TestLog(t *testing.T) {
	var got bytes.Buffer
	log := newLogger(func(level int32, text string) { fmt.Fprintf(&got, "%d %s\n", level, text) })
	log.Debug("one")
	log.With("a", 1).WithGroup("g").Info("two", "b", "c d", slog.Group("h", "m", true))
	log.Warn("three", "n", 3)
	log.Error("four", "err", errors.New("x"))
	want := "0 one\n1 two a=1 g.b=\"c d\" g.h.m=true\n2 three n=3\n3 four err=x\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	got.Reset()
	logPanic(log)(Delta{Op: Added, Source: "pods", Name: "p"}, "oh")
	if !strings.HasPrefix(got.String(), `3 handler panicked delta="added pods p" panic=oh stack="goroutine`) {
		t.Errorf("got %s", got.String())
	}
}

func TestEventJSON(t *testing.T) {
	b, err := Event{Data: json.RawMessage("[1,\n 2]")}.append([]byte("x"))
	if err != nil || string(b) != `x{"data":[1,2]}` {
		t.Errorf("got %s, %v", b, err)
	}
	if b, err := (Event{Data: []byte("{")}).append([]byte("x")); err == nil || string(b) != "x" {
		t.Errorf("got %s, %v", b, err)
	}
}

func TestAligned(t *testing.T) {
	for n := range 40 {
		if b := aligned(n); len(b) < n || len(b)%8 != 0 {
			t.Errorf("%d bytes for %d", len(b), n)
		}
	}
}
