package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

const tapConfig = `version: 1
define: {big: object.n > 3 && has(object.big)}
sources: {things: {resource: example.com/v1/things}, others: {resource: example.com/v1/others}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: [things, others], to: out}
  - {name: gone, from: things, on: deleted, to: out}
  - {name: big, from: things, filter: 'op != "sync" && big', to: out}
  - {name: odd, from: things, filter: 'object.n / object.zero == 1', to: out}
  - {name: near, from: others, when: 'object.n > 3 && now > timestamp("2020-01-01T00:00:00Z")', check: 1h, to: out}
  - {name: fed, on: added, filter: 'event.data.n > 1', to: out}
`

// tapping is a router that has nothing but a configuration.
func tapping(t *testing.T) *router {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(tapConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Load(file)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	fed := cfg.Routes[len(cfg.Routes)-1]
	fed.From, fed.FedBy = []string{"things"}, []string{"all"}
	r := &router{objects: new(atomic.Pointer[inventory]), taps: &taps{}}
	r.objects.Store(&inventory{config: cfg, catalog: index.NewCatalog(), routes: func() (*expr.Env, error) { return expr.NewEnv(environment(cfg, nil, nil)) }})
	return r
}

func added(t *testing.T, source, fields string) *event.Delta {
	t.Helper()
	return &event.Delta{Source: source, Op: event.Added, New: parse(t, source, `{"metadata":{"name":"x","uid":"u","resourceVersion":"7"},`+fields+`}`), Seen: time.Now()}
}

// given is a delta of which another route made an event.
func given(t *testing.T, op event.Op, n int) *event.Delta {
	t.Helper()
	d := added(t, "things", `"n":4`)
	d.Op, d.Event = op, &event.Event{Type: "e", Route: "all", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
	return d
}

// lastGiven is the last that a test gives to the route fed.
func lastGiven(t *testing.T) *event.Delta {
	t.Helper()
	d := given(t, event.Added, 2)
	d.New = parse(t, "things", `{"metadata":{"name":"end"}}`)
	return d
}

// TestTap: of each delta a tap tells what the routes make of it, and which condition was not met.
func TestTap(t *testing.T) {
	for _, c := range []struct {
		query api.TapQuery
		delta *event.Delta
		want  string
	}{
		{api.TapQuery{}, given(t, event.Added, 2), "fed: match (e of all)|"},
		{api.TapQuery{Route: "fed"}, given(t, event.Added, 2), "fed: match (e of all)|"},
		{api.TapQuery{Route: "fed", Rejected: true}, given(t, event.Added, 1), "fed: no match event.data.n > 1 config.yaml:11:37 (e of all)|"},
		{api.TapQuery{Route: "fed", Rejected: true}, given(t, event.Deleted, 2), "fed: no match on: added (e of all)|"},
		{api.TapQuery{Route: "all", Rejected: true}, given(t, event.Added, 2), ""},
		{api.TapQuery{}, added(t, "things", `"n":4,"big":1,"zero":1`), "all: match| big: match|"},
		{api.TapQuery{}, added(t, "others", `"n":4,"zero":1`), "all: match| near: holds|"},
		{api.TapQuery{Route: "near"}, added(t, "others", `"n":3`), ""},
		{api.TapQuery{Rejected: true, Route: "near"}, added(t, "others", `"n":3`), "near: does not hold object.n > 3 config.yaml:10:39|"},
		{api.TapQuery{Rejected: true, Route: "near"}, &event.Delta{Source: "others", Op: event.Deleted, Old: added(t, "others", `"n":4`).New}, "near: does not hold deleted|"},
		{
			api.TapQuery{Rejected: true},
			added(t, "things", `"n":4,"zero":0`),
			"all: match| gone: no match on: deleted| big: no match has(object.big) config.yaml:2:31| odd: error object.n / object.zero == 1 config.yaml:9:40 division by zero|",
		},
		{api.TapQuery{}, added(t, "things", `"n":4,"zero":0`), "all: match| odd: error object.n / object.zero == 1 config.yaml:9:40 division by zero|"},
		{api.TapQuery{Rejected: true, Route: "big"}, added(t, "things", `"big":0`), `big: no match object.n > 3 config.yaml:2:15 no such key: "n"|`},
		{api.TapQuery{Rejected: true, Route: "all"}, &event.Delta{Source: "things", Op: event.Added, Initial: true, New: added(t, "things", `"n":1`).New}, "all: no match existing: skip|"},
	} {
		r := tapping(t)
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		enough := errors.New("enough")
		err := r.tap(ctx, c.query, func(tapped api.Tapped) error {
			if tapped == (api.Tapped{}) {
				give := func(d *event.Delta) {
					of := *d
					of.Event = nil
					made := *d.Event
					made.Of = &of
					r.taps.given("all", pipeline.NamedSink{Name: "back", Feeds: "fed"}, []event.Event{made})
				}
				if c.delta.Event != nil {
					give(c.delta)
				} else {
					r.taps.offer(c.delta, "")
				}
				if c.query.Route == "fed" {
					r.taps.offer(added(t, "things", `"n":4`), "") // comes from a source, and not from a route
					give(lastGiven(t))
				}
				for _, source := range []string{"things", "others"} {
					r.taps.offer(&event.Delta{Source: source, Op: event.Added, New: parse(t, source, `{"metadata":{"name":"end"},"n":4}`), Seen: time.Now()}, "")
				}
				return nil
			}
			if tapped.Key == "end" {
				return enough
			}
			line := strings.TrimSpace(fmt.Sprintf("%s: %s %s", tapped.Route, tapped.Verdict, tapped.Why))
			if tapped.At != "" {
				line += " " + filepath.Base(tapped.At)
			}
			if tapped.Reason != "" {
				line += " " + tapped.Reason
			}
			if tapped.Event != "" {
				line += " (" + tapped.Event + ")"
			}
			got = append(got, line+"|")
			return nil
		})
		cancel()
		if s := strings.Join(got, " "); s != c.want || !errors.Is(err, enough) {
			t.Errorf("%+v: got %s, %v, want %s", c.query, s, err, c.want)
		}
		if r.taps.active.Load() != nil {
			t.Error("a tap that has ended is still there")
		}
	}
}

// TestTapHoldsUpNothing: what goes by too fast for who looks on is counted, and nobody waits.
func TestTapHoldsUpNothing(t *testing.T) {
	r, d := tapping(t), added(t, "others", `"n":1`)
	enough, n := errors.New("enough"), int64(0)
	err := r.tap(t.Context(), api.TapQuery{Route: "all"}, func(tapped api.Tapped) error {
		if tapped == (api.Tapped{}) {
			for range 1000 {
				r.taps.offer(d, "") // nobody reads meanwhile
			}
			return nil
		}
		if n++; n == 1 && tapped.Missed != 1000-tapBacklog {
			t.Errorf("%d were missed", tapped.Missed)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestTapRefuses(t *testing.T) {
	r := tapping(t)
	err := r.tap(t.Context(), api.TapQuery{Route: "bg"}, nil)
	if q, ok := errors.AsType[*api.QueryError](err); !ok || !q.Unknown || q.Message != `there is no route "bg"; did you mean "big"?` {
		t.Error(err)
	}
	depth, last := 0, error(nil)
	var open func(api.Tapped) error
	open = func(api.Tapped) error {
		depth++
		if err := r.tap(t.Context(), api.TapQuery{}, open); last == nil {
			last = err
		}
		return errors.New("enough")
	}
	_ = open(api.Tapped{})
	if want := fmt.Sprintf("there are %d taps already", maxTaps); depth != maxTaps+1 || last == nil || !strings.HasPrefix(last.Error(), want) {
		t.Errorf("%d taps, %v, want %s", depth, last, want)
	}
}

// TestTapOfAFedRoute: who looks at a route that others feed misses nothing of it because of what is not for it.
func TestTapOfAFedRoute(t *testing.T) {
	r := tapping(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough := errors.New("enough")
	err := r.tap(ctx, api.TapQuery{Route: "fed"}, func(tapped api.Tapped) error {
		if tapped != (api.Tapped{}) {
			if tapped.Route != "fed" || tapped.Missed > 0 {
				t.Errorf("got %+v", tapped)
			}
			return enough
		}
		for range 2 * tapBacklog {
			r.taps.offer(added(t, "things", `"n":4`), "")
			r.taps.offer(given(t, event.Added, 2), "other")
		}
		r.taps.offer(given(t, event.Added, 2), "fed")
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}
