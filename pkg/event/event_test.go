package event_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

func TestOps(t *testing.T) {
	want := []string{"added", "updated", "deleted", "deselected", "sync", "entered", "left"}
	for i, op := range event.Ops() {
		if op.String() != want[i] {
			t.Errorf("%d is called %s", i, op)
		}
		if back, ok := event.ParseOp(op.String()); !ok || back != op {
			t.Errorf("ParseOp(%s) = %v, %v", op, back, ok)
		}
	}
	for _, s := range []string{"", "Added", "op(9)"} {
		if op, ok := event.ParseOp(s); ok {
			t.Errorf("ParseOp(%q) = %v", s, op)
		}
	}
	if got := event.Op(9).String(); got != "op(9)" {
		t.Error(got)
	}
}

func TestNew(t *testing.T) {
	seen := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	o := parse(t, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}`)
	d := &event.Delta{Source: "pods", Op: event.Deleted, Old: o, Seen: seen, Redelivered: true}
	e := event.New(d, "r", 0, []byte(`{}`))
	if e.ID == "" || e.ID != event.NewID(d, "r", 0) {
		t.Error("id", e.ID)
	}
	if e.Of != d || e.OrderKey() != "pods/n/a" {
		t.Errorf("of %v, with the key %s", e.Of, e.OrderKey())
	}
	if e.Key = "mine"; e.OrderKey() != "mine" {
		t.Errorf("the key %s", e.OrderKey())
	}
	e.ID = ""
	want := event.Event{
		Type: "deltarouter.deleted", Source: "/clusters/prod/sources/pods", Subject: "n/a", Time: seen, Data: []byte(`{}`),
		Route: "r", K8sUID: "u", K8sResourceVersion: "7", Redelivered: true,
	}
	if got, want := asJSON(t, e), asJSON(t, want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := d.String(); got != "deleted pods n/a" {
		t.Error(got)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The id is the same when the same event is made again, and differs where a receiver must not drop it.
func TestNewID(t *testing.T) {
	at := func(uid, version string) *event.Object {
		return parse(t, `{"metadata":{"name":"a","uid":"`+uid+`","resourceVersion":"`+version+`"}}`)
	}
	seen := time.Unix(1, 0)
	base := event.NewID(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "r", 0)
	if event.NewID(&event.Delta{Op: event.Updated, Old: at("u", "6"), New: at("u", "7"), Seen: time.Unix(2, 0)}, "r", 0) != base {
		t.Error("the id depends on more than it should")
	}
	others := map[string]string{
		"uid":     event.NewID(&event.Delta{Op: event.Updated, New: at("v", "7"), Seen: seen}, "r", 0),
		"version": event.NewID(&event.Delta{Op: event.Updated, New: at("u", "8"), Seen: seen}, "r", 0),
		"op":      event.NewID(&event.Delta{Op: event.Added, New: at("u", "7"), Seen: seen}, "r", 0),
		"route":   event.NewID(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "s", 0),
		"n":       event.NewID(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "r", 1),
		"event":   event.NewID(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen, Event: &event.Event{ID: "a"}}, "r", 0),
	}
	for what, id := range others {
		if id == base {
			t.Errorf("the %s makes no difference", what)
		}
	}
	gone := func(version string) string {
		return event.NewID(&event.Delta{Op: event.Deleted, Old: at("u", version), Seen: seen}, "r", 0)
	}
	if gone("7") != gone("8") {
		t.Error("a delete depends on the version")
	}
	sync := func(round time.Time) string {
		return event.NewID(&event.Delta{Op: event.Sync, New: at("u", "7"), Seen: round}, "r", 0)
	}
	if sync(seen) == sync(seen.Add(time.Second)) {
		t.Error("two rounds of sync are one")
	}
}

// A route without a handler passes on what another one made of the delta, as an event of its own.
func TestPlain(t *testing.T) {
	o := parse(t, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}}`)
	d := &event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Unix(5, 0), Durable: make(chan struct{})}
	if e := event.Plain(d, "r"); string(e.Data) != string(event.Payload(d)) || e.ID != event.NewID(d, "r", 0) || e.Type != "deltarouter.added" {
		t.Errorf("got %+v", e)
	}
	first := event.New(d, "first", 1, []byte(`{"x":1}`))
	first.Type, first.Subject, first.Key = "mine", "what", "key"
	fed := event.Feed(d, &first)
	if fed.Event.Of != nil || fed.Event.Key != "" || first.Of != d || fed.Durable != nil || d.Durable == nil || d.Event != nil || fed.New != o {
		t.Errorf("the delta is %+v, its event %+v", fed, fed.Event)
	}
	e := event.Plain(fed, "r")
	if e.Type != "mine" || e.Subject != "what" || string(e.Data) != `{"x":1}` || e.Route != "r" || e.ID != event.NewID(fed, "r", 0) || e.ID == first.ID {
		t.Errorf("got %+v", e)
	}
}

func TestPayload(t *testing.T) {
	a, b := parse(t, `{"metadata":{"name":"a"},"v":1}`), parse(t, `{"metadata":{"name":"a"},"v":2}`)
	tests := []struct {
		delta event.Delta
		want  string
	}{
		{event.Delta{Op: event.Added, New: a, Initial: true}, `{"op":"added","object":{"metadata":{"name":"a"},"v":1},"initial":true}`},
		{event.Delta{Op: event.Updated, Old: a, New: b}, `{"op":"updated","object":{"metadata":{"name":"a"},"v":2},"oldObject":{"metadata":{"name":"a"},"v":1}}`},
		{event.Delta{Op: event.Deleted, Old: b, Stale: true}, `{"op":"deleted","object":{"metadata":{"name":"a"},"v":2},"stale":true}`},
		{event.Delta{Op: event.Sync, New: b}, `{"op":"sync","object":{"metadata":{"name":"a"},"v":2}}`},
	}
	for _, test := range tests {
		if got := string(event.Payload(&test.delta)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}
