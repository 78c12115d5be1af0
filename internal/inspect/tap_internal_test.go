package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/must"
)

const tapConfig = `version: 1
define: {big: object.n > 3 && has(object.big)}
sources: {things: {resource: example.com/v1/things}, others: {resource: example.com/v1/others}}
sinks: {out: {stdout: {}}}
routes:
  - {name: all, from: [things, others], to: [out, {route: fed}]}
  - {name: gone, from: things, ops: deleted, to: out}
  - {name: big, from: things, filter: 'op != "sync" && big', to: out}
  - {name: odd, from: things, filter: 'object.n / object.zero == 1', to: out}
  - {name: near, from: others, when: 'object.n > 3 && now > timestamp("2020-01-01T00:00:00Z")', reevaluate: 1h, to: out}
  - {name: fed, ops: added, filter: 'event.data.n > 1', to: out}
`

// tapping makes the taps of a router with a configuration and nothing else.
func tapping(t *testing.T) *Taps {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(tapConfig), 0o600))
	cfg, problems := config.Load(file, config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	r := NewTaps(&Current{})
	r.objects.Store(&Inventory{config: cfg, catalog: index.NewCatalog(), routes: func() (*cel.Env, error) { return cel.NewEnv(compile.Environment(cfg, nil, nil)) }})
	return r
}

func added(t *testing.T, source, fields string) *event.Delta {
	t.Helper()
	return &event.Delta{Source: source, Op: event.Added, New: parse(t, source, `{"metadata":{"name":"x","uid":"u","resourceVersion":"7"},`+fields+`}`), Seen: time.Now()}
}

// input is a delta with the event of an upstream route.
func input(t *testing.T, op event.Op, n int) *event.Delta {
	t.Helper()
	d := added(t, "things", `"n":4`)
	d.Op, d.Event = op, &event.Event{Type: "e", Route: "all", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
	return d
}

// lastGiven is the last delta that a test passes to the route fed.
func lastGiven(t *testing.T) *event.Delta {
	t.Helper()
	d := input(t, event.Added, 2)
	d.New = parse(t, "things", `{"metadata":{"name":"end"}}`)
	return d
}

// TestTap shows the decision of each route about a delta, with the first part of the filter that
// was not met.
func TestTap(t *testing.T) {
	for _, c := range []struct {
		query api.TapQuery
		delta *event.Delta
		want  string
	}{
		{api.TapQuery{}, input(t, event.Added, 2), "fed: match (e of all)|"},
		{api.TapQuery{Route: "fed"}, input(t, event.Added, 2), "fed: match (e of all)|"},
		{api.TapQuery{Route: "fed", Rejected: true}, input(t, event.Added, 1), "fed: no match event.data.n > 1 config.yaml:11:38 (e of all)|"},
		{api.TapQuery{Route: "fed", Rejected: true}, input(t, event.Deleted, 2), "fed: no match ops: added (e of all)|"},
		{api.TapQuery{Route: "all", Rejected: true}, input(t, event.Added, 2), ""},
		{api.TapQuery{}, added(t, "things", `"n":4,"big":1,"zero":1`), "all: match| big: match|"},
		{api.TapQuery{}, added(t, "others", `"n":4,"zero":1`), "all: match| near: holds|"},
		{api.TapQuery{Route: "near"}, added(t, "others", `"n":3`), ""},
		{api.TapQuery{Rejected: true, Route: "near"}, added(t, "others", `"n":3`), "near: does not hold object.n > 3 config.yaml:10:39|"},
		{api.TapQuery{Rejected: true, Route: "near"}, &event.Delta{Source: "others", Op: event.Deleted, Old: added(t, "others", `"n":4`).New}, "near: does not hold deleted|"},
		{
			api.TapQuery{Rejected: true},
			added(t, "things", `"n":4,"zero":0`),
			"all: match| gone: no match ops: deleted| big: no match has(object.big) config.yaml:2:31| odd: error object.n / object.zero == 1 config.yaml:9:40 division by zero|",
		},
		{api.TapQuery{}, added(t, "things", `"n":4,"zero":0`), "all: match| odd: error object.n / object.zero == 1 config.yaml:9:40 division by zero|"},
		{api.TapQuery{Rejected: true, Route: "big"}, added(t, "things", `"big":0`), `big: no match object.n > 3 config.yaml:2:15 no such key: "n"|`},
		{api.TapQuery{Rejected: true, Route: "all"}, &event.Delta{Source: "things", Op: event.Added, Initial: true, New: added(t, "things", `"n":1`).New}, "all: no match existing: skip|"},
	} {
		r := tapping(t)
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		enough := errors.New("enough")
		err := r.Show(ctx, nil, c.query, func(tapped api.Tapped) error {
			if tapped == (api.Tapped{}) {
				give := func(d *event.Delta) {
					of := *d
					of.Event = nil
					made := *d.Event
					made.Of = &of
					r.Passed("all", spec.NamedSink{Name: "route:fed", Route: "fed"}, []event.Event{made})
				}
				if c.delta.Event != nil {
					give(c.delta)
				} else {
					r.offer(item{delta: c.delta})
				}
				if c.query.Route == "fed" {
					// This delta comes from a source instead of a route.
					r.offer(item{delta: added(t, "things", `"n":4`)})
					give(lastGiven(t))
				}
				for _, source := range []string{"things", "others"} {
					r.offer(item{delta: &event.Delta{Source: source, Op: event.Added, New: parse(t, source, `{"metadata":{"name":"end"},"n":4}`), Seen: time.Now()}})
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
		if r.active.Load() != nil {
			t.Error("a tap that has ended is still there")
		}
	}
}

// TestTapHoldsUpNothing shows that a slow tap never blocks, and that its missed deltas are counted.
func TestTapHoldsUpNothing(t *testing.T) {
	// Guarantee: tap
	r, d := tapping(t), added(t, "others", `"n":1`)
	enough, n := errors.New("enough"), int64(0)
	err := r.Show(t.Context(), nil, api.TapQuery{Route: "all"}, func(tapped api.Tapped) error {
		if tapped == (api.Tapped{}) {
			for range 1000 {
				r.offer(item{delta: d}) // without a reader
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
	err := r.Show(t.Context(), nil, api.TapQuery{Route: "bg"}, nil)
	if q, ok := errors.AsType[*api.QueryError](err); !ok || !q.Unknown || q.Message != `there is no route "bg"; did you mean "big"?` {
		t.Error(err)
	}
	depth, last := 0, error(nil)
	var open func(api.Tapped) error
	open = func(api.Tapped) error {
		depth++
		if err := r.Show(t.Context(), nil, api.TapQuery{}, open); last == nil {
			last = err
		}
		return errors.New("enough")
	}
	_ = open(api.Tapped{})
	if want := fmt.Sprintf("there are %d taps already", maxTaps); depth != maxTaps+1 || last == nil || !strings.HasPrefix(last.Error(), want) {
		t.Errorf("%d taps, %v, want %s", depth, last, want)
	}
}

// TestTapOfADownstreamRoute shows that the tap of a downstream route misses none of its deltas
// because of deltas for other routes.
func TestTapOfADownstreamRoute(t *testing.T) {
	r := tapping(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough := errors.New("enough")
	err := r.Show(ctx, nil, api.TapQuery{Route: "fed"}, func(tapped api.Tapped) error {
		if tapped != (api.Tapped{}) {
			if tapped.Route != "fed" || tapped.Missed > 0 {
				t.Errorf("got %+v", tapped)
			}
			return enough
		}
		for range 2 * tapBacklog {
			r.offer(item{delta: added(t, "things", `"n":4`)})
			r.offer(item{delta: input(t, event.Added, 2), to: "other"})
		}
		r.offer(item{delta: input(t, event.Added, 2), to: "fed"})
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
}

// TestTapOfWhatBecame shows that a suppressed or given up delta is no match, whether that is known
// before or after its line is shown, and that a delta that goes through one route is shown for that
// route only, whatever its ops are.
func TestTapOfWhatBecame(t *testing.T) {
	// Guarantee: tap
	r := tapping(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough := errors.New("enough")
	early, late, twice := added(t, "others", `"n":1`), added(t, "others", `"n":1`), added(t, "others", `"n":1`)
	sync, end := added(t, "things", `"n":4`), added(t, "others", `"n":1`)
	sync.Op = event.Sync
	var got []string
	err := r.Show(ctx, nil, api.TapQuery{}, func(tapped api.Tapped) error {
		if tapped == (api.Tapped{}) {
			r.offer(item{delta: early})
			r.Refused("all", early, true)
			r.offer(item{delta: late})
			r.offer(item{delta: sync, onlyRoute: "gone"})
			r.Refused("all", twice, false)
			r.Refused("no such route", twice, false)
			return nil
		}
		got = append(got, tapped.Route+" "+tapped.Op+" "+tapped.Verdict)
		switch len(got) {
		case 2:
			r.Refused("all", late, false)
		case 5:
			r.offer(item{delta: end})
		case 6:
			return enough
		}
		return nil
	})
	want := []string{"all added suppressed", "all added match", "gone sync match", "all added given up", "all added given up", "all added match"}
	if !slices.Equal(got, want) || !errors.Is(err, enough) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	one := &tap{deltas: make(chan item)} // it is full
	r.change(func([]*tap) []*tap { return []*tap{one} })
	r.Refused("all", early, true)
	if len(one.outcomes) > 0 || one.missed.Load() != 1 {
		t.Errorf("%v is kept for nobody", one.outcomes)
	}
}
