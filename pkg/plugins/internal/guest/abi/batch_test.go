package abi

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestBatchLayout compares the fields of rules about time with docs/ABI.md, byte by byte. A delta
// has no more fields than it needs.
func TestBatchLayout(t *testing.T) {
	resource := &event.Resource{Cluster: "c", Kind: "Pod"}
	resource.Version, resource.Resource = "v1", "pods"
	o, err := event.ParseObject(resource, `{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}`)
	must.Succeed(t, err)
	seen, since := time.Unix(1e9, 5), time.Unix(1e9-60, 7)
	made := &event.Event{ID: "i", Type: "t", Source: "/s", Subject: "n/a", Route: "r", Time: time.Unix(1e9, 9), Data: []byte(`{"x":1}`)}
	type numbers [3]int64 // of the fields 8, 9 and 10; -1: length 0, -2: absent
	tests := []struct {
		d     event.Delta
		op    byte
		flags uint16
		want  numbers
	}{
		{event.Delta{Op: event.Added, New: o}, 1, 0, numbers{1e18 + 5, -2, -2}},
		{event.Delta{Op: event.Entered, New: o, Since: since, Late: true}, 6, 8, numbers{1e18 + 5, 1e18 - 60e9 + 7, -2}},
		{event.Delta{Op: event.Entered, New: o, Since: since, Repeat: 3, Suppressed: 258}, 6, 16, numbers{1e18 + 5, 1e18 - 60e9 + 7, 258}},
		{event.Delta{Op: event.Left, Old: o, Since: since, Stale: true}, 7, 2, numbers{1e18 + 5, 1e18 - 60e9 + 7, -2}},
		{event.Delta{Op: event.Updated, New: o, Old: o, Suppressed: 1}, 2, 0, numbers{1e18 + 5, -1, 1}},
		{event.Delta{Op: event.Updated, New: o, Event: made}, 2, 0, numbers{1e18 + 5, -1, -1}},
		{event.Delta{Op: event.Left, Old: o, Since: since, Suppressed: 3, Event: made}, 7, 0, numbers{1e18 + 5, 1e18 - 60e9 + 7, 3}},
	}
	var batch []*event.Delta
	room, s := HeaderSize, Sizer{}
	for i := range tests {
		tests[i].d.Source, tests[i].d.Seen = "pods", seen
		batch = append(batch, &tests[i].d)
		room += s.Delta(&tests[i].d)
	}
	buf := []byte(strings.Repeat("\xff", room)) // makes unwritten bytes visible
	le, n := binary.LittleEndian, EncodeBatch(buf, batch, 0)
	if n > room {
		t.Fatalf("%d bytes, and there is room for %d", n, room)
	}
	for i, tt := range tests {
		record := buf[16+32*i:][:32]
		meta := le.Uint32(record[28:])
		fields := le.Uint32(buf[meta:])
		got := numbers{-2, -2, -2}
		for f := uint32(8); f < min(fields, 11); f++ {
			switch ref := buf[meta+4+8*f:]; le.Uint32(ref[4:]) {
			case 0:
				got[f-8] = -1
			case 8:
				got[f-8] = int64(le.Uint64(buf[le.Uint32(ref):]))
			}
		}
		if record[8] != tt.op || le.Uint16(record[10:]) != tt.flags || got != tt.want || fields > 11 != (tt.d.Event != nil) {
			t.Errorf("%s: op %d, flags %d, %d fields, of which the last say %v; want %d, %d and %v", &tt.d, record[8], le.Uint16(record[10:]), fields, got, tt.op, tt.flags, tt.want)
		}
		var texts []string
		for f := uint32(11); f < fields; f++ {
			ref := buf[meta+4+8*f:]
			texts = append(texts, string(buf[le.Uint32(ref):][:le.Uint32(ref[4:])]))
		}
		want := []string{"i", "t", "/s", "n/a", "r", string(le.AppendUint64(nil, 1e18+9)), `{"x":1}`}
		if tt.d.Event != nil && !slices.Equal(texts, want) {
			t.Errorf("%s: the event is %q, want %q", &tt.d, texts, want)
		}
	}
}

// TestBatchRoom: a batch fits into the size of the Sizer for any alignment.
func TestBatchRoom(t *testing.T) {
	long := strings.Repeat("x", 200)
	for pad := range 64 {
		o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"a"},"x":"`+strings.Repeat("x", pad%8)+`"}`)
		must.Succeed(t, err)
		d := &event.Delta{
			Op: event.Entered, New: o, Since: time.Unix(1, 0), Suppressed: 1, Source: strings.Repeat("s", pad/8), TraceParent: long, With: []byte(long),
			Event: &event.Event{ID: long, Type: long, Source: long, Subject: long, Route: long, Data: []byte(`"` + long + `"`)},
		}
		var s Sizer
		room := HeaderSize + s.Delta(d)
		if n := EncodeBatch(make([]byte, room+64), []*event.Delta{d}, 0); n > room {
			t.Errorf("with %d bytes more of an object and %d of a source: %d bytes, and there is room for %d", pad%8, pad/8, n, room)
		}
	}
}

// TestTracedLayout compares the references of a traced batch with docs/ABI.md. A batch with a delta
// that is not traced has none, and is the same as without tracing.
func TestTracedLayout(t *testing.T) {
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, `{"metadata":{"name":"a"}}`)
	must.Succeed(t, err)
	encode := func(parents ...string) []byte {
		var batch []*event.Delta
		room, s := HeaderSize, Sizer{}
		for _, parent := range parents {
			d := &event.Delta{Op: event.Added, New: o, Seen: time.Unix(1, 0), TraceParent: parent}
			batch, room = append(batch, d), room+s.Delta(d)
		}
		buf := []byte(strings.Repeat("\xff", room))
		return buf[:EncodeBatch(buf, batch, 0)]
	}
	le, got := binary.LittleEndian, encode("00-a-b-01", "00-cc-d-00")
	if flags := le.Uint16(got[6:]); flags != 1 {
		t.Errorf("flags %d", flags)
	}
	for i, want := range []string{"00-a-b-01", "00-cc-d-00"} {
		ref := got[16+32*2+8*i:]
		if text := got[le.Uint32(ref):][:le.Uint32(ref[4:])]; string(text) != want {
			t.Errorf("delta %d has %q, want %q", i, text, want)
		}
	}
	if off := encode("", ""); !slices.Equal(encode("00-a-b-01", ""), off) || !slices.Equal(encode("", "00-a-b-01"), off) || le.Uint16(off[6:]) != 0 {
		t.Error("a delta that is not traced changes the batch")
	}
}
