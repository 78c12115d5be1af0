package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/sdk/process"
	"github.com/deltarouter/deltarouter/sdk/process/processtest"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func plugin(h process.Handler) process.Plugin { return process.Plugin{Setup: process.Handle(h)} }

func TestVerdicts(t *testing.T) {
	p := processtest.Start(t, plugin(func(_ context.Context, d process.Delta) ([]process.Event, error) {
		switch d.Name {
		case "fail":
			return nil, errors.New("not this one")
		case "retry":
			return nil, process.Retry(errors.New("later"), time.Second)
		case "drop":
			return nil, process.ErrDrop
		case "panic":
			panic("on purpose")
		case "unable":
			return []process.Event{{Data: func() {}}}, nil
		case "nothing":
			return nil, nil
		}
		return []process.Event{{Type: "t", Subject: "s", Data: json.RawMessage(`[1]`)}, {Data: string(d.Object)}}, nil
	}), processtest.Options{})
	var deltas []process.Delta
	for _, name := range []string{"a", "fail", "retry", "drop", "panic", "unable", "nothing"} {
		deltas = append(deltas, process.Delta{Op: process.Deleted, Source: "pods", Name: name, Object: []byte("{}")})
	}
	want := []processtest.Result{
		{Verdict: "ok", Events: []processtest.Event{{Type: "t", Subject: "s", Data: json.RawMessage(`[1]`)}, {Data: json.RawMessage(`"{}"`)}}},
		{Verdict: "fail", Message: "not this one"},
		{Verdict: "retry", Message: "later"},
		{Verdict: "drop"},
		{Verdict: "fail", Message: "panic: on purpose"},
		{Verdict: "fail", Message: "event 0: json: unsupported type: func()"},
		{Verdict: "ok"},
	}
	if got := p.Handle(deltas...); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestHarness: a delta of the test reaches the plugin unchanged.
func TestHarness(t *testing.T) {
	var got []process.Delta
	p := processtest.Start(t, plugin(func(_ context.Context, d process.Delta) ([]process.Event, error) {
		got = append(got, d)
		return nil, nil
	}), processtest.Options{})
	seen := time.Unix(1e9, 5)
	want := []process.Delta{
		{
			Op: process.Entered, Source: "pods", Cluster: "c", Resource: "v1/pods", Kind: "Pod", Namespace: "n", Name: "a", UID: "u", ResourceVersion: "7",
			Object: []byte("{}"), OldObject: []byte(`{"a":1}`), Initial: true, Stale: true, Redelivered: true, Late: true, Repeat: true,
			Since: seen.Add(-time.Hour), Suppressed: 7, Seen: seen, TraceParent: "00-1-2-01",
			Event: &process.RouteEvent{ID: "i", Type: "t", Source: "/s", Subject: "n/a", Route: "r", Time: seen, Data: []byte(`{"a":1}`)},
		},
		{Op: process.Updated, Object: []byte("{}"), Seen: seen},
	}
	p.Handle(want...)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestLargeIntegers: the SDK passes the text of an object and of the data of an event unchanged.
// What an integer beyond 2^53 becomes depends on the type that the plugin decodes it into.
func TestLargeIntegers(t *testing.T) {
	const object = `{"n":9007199254740993}`
	type known struct{ N int64 }
	p := processtest.Start(t, process.Plugin{Setup: func(_ context.Context, r *process.Router) (process.Handler, error) {
		var config known
		err := r.Config(&config)
		return func(_ context.Context, d process.Delta) ([]process.Event, error) {
			var k known
			var untyped any
			err := errors.Join(json.Unmarshal(d.Object, &k), json.Unmarshal(d.Object, &untyped))
			return []process.Event{{Data: d.Object}, {Data: k}, {Data: config}, {Data: untyped}}, err
		}, err
	}}, processtest.Options{Config: object})
	var want []processtest.Event
	for _, text := range []string{object, `{"N":9007199254740993}`, `{"N":9007199254740993}`, `{"n":9007199254740992}`} {
		want = append(want, processtest.Event{Data: json.RawMessage(text)})
	}
	got := p.Handle(process.Delta{Op: process.Added, Object: []byte(object)})
	if len(got) != 1 || got[0].Verdict != "ok" || !reflect.DeepEqual(got[0].Events, want) {
		t.Errorf("got %+v", got)
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		p            process.Plugin
		config, want string
	}{
		{plugin(nil), "", "the plugin's Setup returns no handler"},
		{process.Plugin{}, "", "the plugin has no Setup"},
		{plugin(func(context.Context, process.Delta) ([]process.Event, error) { return nil, nil }), `{"a": 1}`, `json: unknown field "a"`},
	} {
		if _, got := processtest.Try(t, tt.p, processtest.Options{Config: tt.config}); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestRouter(t *testing.T) {
	var router *process.Router
	p := processtest.Start(t, process.Plugin{Setup: func(_ context.Context, r *process.Router) (process.Handler, error) {
		router = r
		return func(ctx context.Context, _ process.Delta) ([]process.Event, error) {
			objects, err := r.Lookup(ctx, "pods", "byNode", "n1")
			if err != nil {
				return nil, err
			}
			one, err := r.Get(ctx, "nodes", "", "n1")
			if err != nil {
				return nil, err
			}
			return []process.Event{{Data: []any{len(objects), one}}}, errors.Join(r.Log(ctx, process.Warn, "hello"), r.KVDelete(ctx, "k"))
		}, nil
	}}, processtest.Options{KV: map[string]string{"k": "v"}, Objects: map[string][]json.RawMessage{
		"pods/byNode/n1": {json.RawMessage(`{}`), json.RawMessage(`{}`)}, "nodes//n1": {json.RawMessage(`{"a":1}`)},
	}})
	got := p.Handle(process.Delta{Op: process.Added, Object: []byte("{}")})[0]
	if len(got.Events) != 1 || string(got.Events[0].Data) != `[2,{"a":1}]` || len(p.KV()) != 0 || len(p.Logged()) != 1 {
		t.Errorf("%+v, %v, %v", got, p.KV(), p.Logged())
	}
	if router.Handler != "test" || router.Cluster != "test" {
		t.Errorf("%+v", router)
	}
	denied := processtest.Start(t, process.Plugin{Setup: func(_ context.Context, r *process.Router) (process.Handler, error) {
		return func(ctx context.Context, _ process.Delta) ([]process.Event, error) {
			_, _, kv := r.KVGet(ctx, "k")
			_, lookup := r.Count(ctx, "pods", "", "")
			return []process.Event{{Data: []bool{errors.Is(kv, process.ErrDenied), errors.Is(lookup, process.ErrDenied)}}}, nil
		}, nil
	}}, processtest.Options{})
	if got := denied.Handle(process.Delta{Object: []byte("{}")})[0]; string(got.Events[0].Data) != "[true,true]" {
		t.Errorf("%+v", got)
	}
}
