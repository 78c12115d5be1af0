package event_test

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
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
	if e.ID == "" || e.ID != event.New(d, "r", 0, nil).ID {
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
		Type: "io.deltarouter.deleted", Source: "/clusters/prod/sources/pods", Subject: "n/a", Time: seen, Data: []byte(`{}`),
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
	must.Succeed(t, err)
	return string(text)
}

// The ID is the same if the same event is made again, and differs between events that a receiver
// must tell apart.
func TestNewID(t *testing.T) {
	at := func(uid, version string) *event.Object {
		return parse(t, `{"metadata":{"name":"a","uid":"`+uid+`","resourceVersion":"`+version+`"}}`)
	}
	seen := time.Unix(1, 0)
	base := event.New(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "r", 0, nil).ID
	if event.New(&event.Delta{Op: event.Updated, Old: at("u", "6"), New: at("u", "7"), Seen: time.Unix(2, 0)}, "r", 0, nil).ID != base {
		t.Error("the id depends on more than it should")
	}
	others := map[string]string{
		"uid":     event.New(&event.Delta{Op: event.Updated, New: at("v", "7"), Seen: seen}, "r", 0, nil).ID,
		"version": event.New(&event.Delta{Op: event.Updated, New: at("u", "8"), Seen: seen}, "r", 0, nil).ID,
		"op":      event.New(&event.Delta{Op: event.Added, New: at("u", "7"), Seen: seen}, "r", 0, nil).ID,
		"route":   event.New(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "s", 0, nil).ID,
		"n":       event.New(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen}, "r", 1, nil).ID,
		"event":   event.New(&event.Delta{Op: event.Updated, New: at("u", "7"), Seen: seen, Event: &event.Event{ID: "a"}}, "r", 0, nil).ID,
	}
	for what, id := range others {
		if id == base {
			t.Errorf("the %s makes no difference", what)
		}
	}
	gone := func(version string) string {
		return event.New(&event.Delta{Op: event.Deleted, Old: at("u", version), Seen: seen}, "r", 0, nil).ID
	}
	if gone("7") != gone("8") {
		t.Error("a delete depends on the version")
	}
	sync := func(round time.Time) string {
		return event.New(&event.Delta{Op: event.Sync, New: at("u", "7"), Seen: round}, "r", 0, nil).ID
	}
	if sync(seen) == sync(seen.Add(time.Second)) {
		t.Error("two rounds of sync are one")
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

func TestMain(m *testing.M) { leaks.Main(m) }

// TestAttributes: empty values are omitted, and names follow the CloudEvents specification.
func TestAttributes(t *testing.T) {
	bare := event.Event{ID: "1", Source: "/s", Type: "t"}
	full := event.Event{
		ID: "1", Source: "/s", Type: "t", Subject: "n/a", Time: time.Date(2026, 3, 1, 16, 4, 5, 600_000, time.FixedZone("", 3600)),
		Route: "r", K8sUID: "u", K8sResourceVersion: "7", Redelivered: true, Data: []byte("{}"),
	}
	for _, test := range []struct {
		event event.Event
		want  map[string]string
	}{
		{bare, map[string]string{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}},
		{full, map[string]string{
			"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "n/a", "time": "2026-03-01T15:04:05.0006Z",
			"route": "r", "k8suid": "u", "k8sresourceversion": "7", "redelivered": "true",
		}},
	} {
		if got := maps.Collect(test.event.Attributes); !maps.Equal(got, test.want) {
			t.Errorf("got  %v\nwant %v", got, test.want)
		}
	}
	for name := range full.Attributes {
		if name != "specversion" {
			t.Errorf("%s comes after the end", name)
		}
		break
	}
}
