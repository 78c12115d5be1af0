package callrecord

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func object(t testing.TB, name string) *event.Object {
	t.Helper()
	of := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Cluster: "c", Kind: "Deployment"}
	o, err := event.ParseObject(of, fmt.Sprintf(`{ "metadata": {"name": %q, "uid": "u"}, "x": "<&>\u00e9" }`, name))
	must.Succeed(t, err)
	return o
}

// full returns a record with a value in each field.
func full(t testing.TB) *Record {
	t.Helper()
	seen := time.Date(2026, 1, 2, 15, 4, 5, 678, time.UTC)
	return &Record{
		Kind: "wasm", Handler: "h", Module: "abc", Settings: "def", Error: "oh", Fuel: 7, Delta: 1, Earlier: 2, Omitted: 3, Incomplete: true,
		Start: []Answer{{Function: "clock", Value: 9}},
		Calls: []Call{{
			Clock: Clock{1, 2},
			Batch: []*event.Delta{
				{
					Op: event.Updated, Source: "s", New: object(t, "a"), Old: object(t, "a"), Seen: seen, Initial: true, Stale: true, Late: true, Redelivered: true,
					Since: seen.Add(-1), Began: "b", Repeat: 4, Suppressed: 5, TraceParent: "00-1", With: []byte(`{"a": 1}`),
					Event: &event.Event{ID: "i", Type: "t", Source: "s", Subject: "u", Route: "r", Time: seen, Data: []byte(`{"a": 1}`)},
				},
				{Op: event.Deleted, Source: "s", Old: object(t, "b"), Seen: seen},
			},
			Answers: []Answer{
				{Function: "lookup", Request: 1, Status: -1, Fuel: 5, Data: []byte("<é>\n")},
				{Function: "random", Data: []byte{0xff, 0}},
			},
		}},
	}
}

// TestEncoding: a record is the same after encoding, also if its JSON was reformatted, as router
// dlq show does.
func TestEncoding(t *testing.T) {
	text, err := full(t).Encode()
	must.Succeed(t, err)
	var indented bytes.Buffer
	must.Succeed(t, json.Indent(&indented, text, "", "  "))
	r, err := Decode(indented.Bytes())
	must.Succeed(t, err)
	again, err := r.Encode()
	must.Succeed(t, err)
	if !bytes.Equal(again, text) {
		t.Errorf("got  %s\nwant %s", again, text)
	}
	got, want := r.Calls[0], full(t).Calls[0]
	if !bytes.Equal(got.Batch[0].New.JSON(), want.Batch[0].New.JSON()) || *got.Batch[1].Old.Resource() != *want.Batch[1].Old.Resource() {
		t.Errorf("the objects are %s and %s", got.Batch[0].New.JSON(), got.Batch[1].Old.JSON())
	}
	for i := range got.Answers {
		if !bytes.Equal(got.Answers[i].Data, want.Answers[i].Data) {
			t.Errorf("answer %d is %q", i, got.Answers[i].Data)
		}
	}
}

func TestDecodeMistakes(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"", "is malformed"},
		{"[]", "is malformed"},
		{`{"calls": [{"deltas": []}]}`, "a call without deltas"},
		{`{"calls": [{"deltas": [{"op": "added"}]}]}`, "it has no op, or no object"},
		{`{"calls": [{"deltas": [{"op": "gone", "new": "{}"}]}]}`, "it has no op, or no object"},
		{`{"calls": [{"deltas": [{"op": "added", "new": "{"}]}]}`, "its object is not JSON"},
		{`{"calls": [{"deltas": [{"op": "added", "new": "{}"}]}]}`, "name"},
		{`{"calls": [{"deltas": [{"op": "added", "new": "{\"metadata\":{\"name\":\"a\"}}", "event": {"data": "{"}}]}]}`, "the data of its event is not JSON"},
		{`{"calls": [{"deltas": [{"op": "added", "new": "{\"metadata\":{\"name\":\"a\"}}", "with": "{"}]}]}`, "its values of with are not JSON"},
		{`{"delta": 1, "calls": [{"deltas": [{"op": "added", "new": "{\"metadata\":{\"name\":\"a\"}}"}]}]}`, "has 1 deltas, and number 1 failed"},
		{`{"start": [{"function": "f", "fuel": -1}]}`, "fuel below zero"},
		{`"` + strings.Repeat("x", MaxText) + `"`, "at most"},
	} {
		_, err := Decode([]byte(c.text))
		must.Fail(t, err, c.err)
	}
}

// FuzzDecode: any text is refused, or is a record whose replay can begin.
func FuzzDecode(f *testing.F) {
	text, err := full(f).Encode()
	must.Succeed(f, err)
	f.Add(text)
	f.Add([]byte(`{"calls":[{"deltas":[{"op":"added","new":"{\"metadata\":{\"name\":\"a\"}}"}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Decode(text)
		if err != nil {
			return
		}
		if n := len(r.Calls); n > 0 {
			_ = r.Calls[n-1].Batch[r.Delta].String()
		}
		p := &Replay{Record: r}
		for range len(r.Calls) + 1 {
			p.Answer("clock", 0)
			p.Begin()
		}
		if _, err := r.Encode(); err != nil {
			t.Error(err)
		}
	})
}

func TestAttach(t *testing.T) {
	r, plain := &Record{}, errors.New("oh")
	if err := Attach(plain, nil); err != plain { //nolint:errorlint // the same value
		t.Error("an error without a record is changed")
	}
	err := Attach(plain, r)
	if Of(fmt.Errorf("more: %w", err)) != r || Of(plain) != nil || Of(nil) != nil {
		t.Error("the record is not found, or found where there is none")
	}
	twice := Attach(fmt.Errorf("more: %w", err), r)
	Detach(plain)
	if Detach(twice); Of(twice) != nil || Of(err) != nil || twice.Error() != "more: oh" {
		t.Error("the record is not removed")
	}
}

// TestRecorderMemory: a record keeps its content when the guest goes on.
func TestRecorderMemory(t *testing.T) {
	var r Recorder
	call := func(name string, size int) {
		r.Begin([]*event.Delta{{Op: event.Added, New: object(t, name)}}, size, Clock{})
		r.Set(r.Add("kv_get", name), 0, 1, 0, []byte(name))
	}
	content := func(rec *Record) (names string) {
		for _, c := range rec.Calls {
			names += c.Batch[0].Key().Name + string(c.Answers[0].Data) + " "
		}
		return names
	}
	r.Set(r.Add("clock", ""), 0, 0, 1, nil) // at the start of the guest
	call("a", 0)
	call("b", 0)
	first := r.Record()
	call("c", MaxHistory)
	second := r.Record()
	call("d", 0)
	for _, c := range []struct {
		rec     *Record
		earlier int
		want    string
	}{{first, 0, "aa bb "}, {second, 2, "cc "}, {r.Record(), 3, "dd "}} {
		if got := content(c.rec); got != c.want || c.rec.Earlier != c.earlier || len(c.rec.Start) != 1 {
			t.Errorf("%s after %d calls and %d answers, want %s after %d", got, c.rec.Earlier, len(c.rec.Start), c.want, c.earlier)
		}
	}
	last := r.Record()
	r.Trim()
	if r.Record() != nil || content(last) != "dd " {
		t.Error("a call is kept, although no later record has it, or a record has lost it")
	}
	call("d", 0)
	if rec := r.Record(); content(rec) != "dd " || rec.Earlier != 4 || rec.Before != 4 {
		t.Errorf("%s after %d calls with %d deltas", content(rec), rec.Earlier, rec.Before)
	}
	r.Restarted()
	call("e", 0)
	if rec := r.Record(); content(rec) != "ee " || rec.Earlier != 0 {
		t.Errorf("after a restart: %s after %d calls", content(rec), rec.Earlier)
	}
}

// TestStart: the answers to the start of a guest are part of the bound of each record, and a record
// without all of them says so.
func TestStart(t *testing.T) {
	const large = MaxSize - 8<<10
	for _, starts := range []int{1, 2} {
		var r Recorder
		for range starts {
			r.Set(r.Add("random", ""), 0, 0, 0, make([]byte, large))
		}
		for range 2 {
			r.Begin([]*event.Delta{{Op: event.Added, New: object(t, "a")}}, 1000, Clock{})
			r.Set(r.Add("kv_get", "a"), 0, 0, 0, make([]byte, 1000))
			whole := r.Record().For(0)
			if len(whole.Start) != 1 || len(whole.Calls[0].Answers) != 1 || whole.Incomplete != (starts > 1) {
				t.Errorf("%d starts: %d answers to it, %d others, incomplete: %t", starts, len(whole.Start), len(whole.Calls[0].Answers), whole.Incomplete)
			}
			r.Begin([]*event.Delta{{Op: event.Added, New: object(t, "b")}}, MaxHistory, Clock{})
			r.Set(r.Add("kv_get", "a"), 0, 0, 0, make([]byte, MaxHistory))
			if rec := r.Record().For(0); !rec.Incomplete || rec.Size() > MaxSize {
				t.Errorf("%d bytes, incomplete: %t", rec.Size(), rec.Incomplete)
			}
		}
	}
}

// TestSecrets: there is no record of a call with a Secret, nor of one after it as long as that
// would be part of the record.
func TestSecrets(t *testing.T) {
	// Guarantee: secrets-off-disk
	secret, err := event.ParseObject(&event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}, `{"metadata":{"name":"s"}}`)
	must.Succeed(t, err)
	unknown, err := event.ParseObject(nil, `{"metadata":{"name":"s"}}`)
	must.Succeed(t, err)
	for _, o := range []*event.Object{secret, unknown} {
		var r Recorder
		begin := func(o *event.Object) { r.Begin([]*event.Delta{{Op: event.Added, New: o}}, 0, Clock{}) }
		begin(object(t, "a"))
		begin(o)
		if r.Record() != nil {
			t.Error("the record has a delta of a Secret")
		}
		begin(object(t, "b"))
		if rec := r.Record(); rec == nil || len(rec.Calls) != 1 || rec.Earlier != 2 {
			t.Errorf("after a Secret: %+v", rec)
		}
		r.Saw(o)
		if r.Record() != nil {
			t.Error("the record has an answer with a Secret")
		}
	}
}
