package work_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

var pods = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "c", Kind: "Pod"}

func object(t testing.TB, text string) *event.Object {
	t.Helper()
	o, err := event.ParseObject(pods, text)
	must.Succeed(t, err)
	return o
}

// full returns a delta in which each field of a worker's interest is set.
func full(t testing.TB) *event.Delta {
	d := &event.Delta{
		Source: "pods", Op: event.Entered, Initial: true, Stale: true, Late: true, Redelivered: true,
		Old:  object(t, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"6"},"spec":{"x":1}}`),
		New:  object(t, `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"},"spec":{"x":2}}`),
		Seen: time.Unix(5, 6), Since: time.Unix(3, 4), Began: "began", Repeat: 2, Suppressed: 3,
		With:        []byte(`{"pods":["a","b"],"x":null}`),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	e := event.New(d, "upstream", 1, []byte(`{"y":1}`))
	e.Of, e.Type, e.Subject = nil, "mine", "s"
	d.Event = &e
	return d
}

// shown returns the fields of a delta in comparable form.
func shown(d *event.Delta) map[string]any {
	all := map[string]any{}
	v := reflect.ValueOf(*d)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch x := any(nil); f.Name {
		case "transit":
		case "Old", "New":
			if o := v.Field(i).Interface().(*event.Object); o != nil {
				x = string(o.JSON()) + o.Resource().String() + o.Resource().Cluster + o.Resource().Kind
			}
			all[f.Name] = x
		case "Event":
			if d.Event != nil {
				x = *d.Event
			}
			all[f.Name] = x
		default:
			all[f.Name] = v.Field(i).Interface()
		}
	}
	return all
}

// A message keeps all fields of a delta: a new field of event.Delta must be added to full.
func TestCodec(t *testing.T) {
	c := work.NewCodec()
	v := reflect.ValueOf(*full(t))
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "transit" && v.Field(i).IsZero() {
			t.Errorf("the delta of this test has no %s", v.Type().Field(i).Name)
		}
	}
	small := &event.Delta{Source: "pods", Op: event.Deleted, Old: full(t).Old}
	for _, m := range []*work.Message{
		{Route: "r", Hash: "h", Key: "k\n", Keyed: true, Made: true, Target: "s", Delta: full(t)},
		{Route: "r", Delta: small},
	} {
		transit.Of(m.Delta).Selective = true
		got, err := c.Decode(c.Encode(m))
		must.Succeed(t, err)
		if a, b := shown(got.Delta), shown(m.Delta); !reflect.DeepEqual(a, b) {
			t.Errorf("got %v\nwant %v", a, b)
		}
		if !transit.Of(got.Delta).Selective {
			t.Error("Selective is lost")
		}
		got.Delta = m.Delta
		if *got != *m {
			t.Errorf("got %+v, want %+v", got, m)
		}
	}
	a, err := c.Decode(c.Encode(&work.Message{Delta: small}))
	must.Succeed(t, err)
	b, err := c.Decode(c.Encode(&work.Message{Delta: full(t)}))
	must.Succeed(t, err)
	if a.Delta.Old.Resource() != b.Delta.Old.Resource() {
		t.Error("two messages do not share their resource")
	}
}

// The data of a Secret stays with the leader.
func TestSecret(t *testing.T) {
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret"}
	o, err := event.ParseObject(r, `{"metadata":{"name":"a","uid":"u"},"data":{"password":"aHVudGVyMg=="}}`)
	must.Succeed(t, err)
	c := work.NewCodec()
	d := &event.Delta{Source: "secrets", Op: event.Added, New: o}
	e := event.New(d, "up", 0, []byte(`{"password":"aHVudGVyMg=="}`))
	d.Event = &e
	got, err := c.Decode(c.Encode(&work.Message{Delta: d}))
	must.Succeed(t, err)
	if text := string(got.Delta.New.JSON()) + string(got.Delta.Event.Data); strings.Contains(text, "aHVudGVyMg") {
		t.Errorf("got %s", text)
	}
}

func TestPartition(t *testing.T) {
	if got := work.Partition("pods/default/web-0", 8); got != 7 { // the formula is part of the format
		t.Errorf("got partition %d", got)
	}
	if work.Partition("x", 1) != 0 || work.Partition("x", 0) != 0 {
		t.Error("one partition has another number than 0")
	}
}

// FuzzDecode: a hostile body is an error, and a body that is accepted can be encoded again.
func FuzzDecode(f *testing.F) {
	c := work.NewCodec()
	body := c.Encode(&work.Message{Route: "r", Hash: "h", Key: "k", Keyed: true, Target: "s", Delta: full(f)})
	f.Add(body)
	f.Add(body[:len(body)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := c.Decode(body)
		if err != nil {
			if !errors.Is(err, work.ErrFormat) {
				t.Errorf("the error %v is not ErrFormat", err)
			}
			return
		}
		again, err := c.Decode(c.Encode(m))
		if err != nil || !bytes.Equal(c.Encode(again), c.Encode(m)) {
			t.Errorf("the message changes: %v", err)
		}
	})
}
