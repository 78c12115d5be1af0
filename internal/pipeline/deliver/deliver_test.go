package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// fakeRoute records the calls of a batch to its route.
type fakeRoute struct {
	calls    []string
	handling context.Context // nil: that of the test
}

func (r *fakeRoute) note(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *fakeRoute) Now() time.Time { return time.Unix(1000, 0) }

func (r *fakeRoute) Report(entries []*queue.Entry) {
	for _, e := range entries {
		r.note("report %s %b", e.Delta.Key().Name, e.Progress.Closed)
	}
}

func (r *fakeRoute) Pause(d *event.Delta, target string, _ error, bySink bool) {
	r.note("pause %s %s %v", d.Key().Name, target, bySink)
}

func (r *fakeRoute) Refused(d *event.Delta)                              { r.note("refused %s", d.Key().Name) }
func (r *fakeRoute) Complain(string, *event.Delta, string, error)        {}
func (r *fakeRoute) Remove(context.Context, []uint64) (n int, err error) { return 0, nil }

func (r *fakeRoute) PassOn(_ context.Context, target int, e *queue.Entry, _ bool) error {
	r.note("pass on %s", e.Delta.Key().Name)
	e.Progress.Closed |= 1 << target
	return nil
}

func (r *fakeRoute) Add(_ context.Context, deadLetters []checkpoint.Letter) error {
	for _, l := range deadLetters {
		r.note("letter %s %s: %s", l.Delta.Key().Name, l.Sink, l.Error)
	}
	return nil
}

type sinkFunc func(events []event.Event) []error

func (f sinkFunc) Write(_ context.Context, events []event.Event) []error { return f(events) }
func (f sinkFunc) Close(context.Context) error                           { return nil }

// noted is a sink that takes all events, and is recorded among the calls.
func (r *fakeRoute) noted(name string) sinkFunc {
	return func(events []event.Event) []error {
		r.note("write %d to %s", len(events), name)
		return nil
	}
}

// run delivers one delta of each name to the sinks, and returns the entries.
func (r *fakeRoute) run(t *testing.T, settings spec.Settings, sinks []sinkFunc, objects ...string) []*queue.Entry {
	t.Helper()
	cfg := r.configure(settings, sinks)
	var q queue.Queue
	for _, name := range objects {
		o, err := event.ParseObject(&event.Resource{}, `{"metadata":{"name":"`+name+`","uid":"u"}}`)
		if err != nil {
			t.Fatal(err)
		}
		e := q.Add(queue.Item{Delta: &event.Delta{Source: "s", Op: event.Added, New: o, Seen: r.Now()}})
		q.Place(e, e.Object(), r.Now())
	}
	batch := q.Take(len(objects), nil, nil)
	r.pass(t, cfg, batch)
	return batch
}

// configured is the settings of a route, with its targets.
type configured struct {
	*spec.Settings
	targets []deliver.Target
}

// configure returns the settings with the sinks.
func (r *fakeRoute) configure(settings spec.Settings, sinks []sinkFunc) configured {
	settings.Name, settings.ID = "r", "r"
	for i := range sinks {
		settings.Sinks = append(settings.Sinks, spec.NamedSink{Name: fmt.Sprintf("sink%d", i)})
	}
	cfg := configured{Settings: settings.Prepare(0, metrics.New(), slog.New(slog.DiscardHandler))}
	for i, s := range sinks {
		target := deliver.Target{Name: cfg.Sinks[i].Name}
		if s != nil {
			target.Sink = deliver.NewSink(target.Name, "", s, complaints.New(slog.New(slog.DiscardHandler)), timer.NewFake(r.Now()))
		}
		cfg.targets = append(cfg.targets, target)
	}
	return cfg
}

// pass delivers a batch, as far as possible now.
func (r *fakeRoute) pass(t *testing.T, cfg configured, batch []*queue.Entry) {
	t.Helper()
	b := deliver.New(deliver.Env{Clock: timer.NewFake(r.Now()), Progress: r, Chain: r, Letters: r})
	if r.handling == nil {
		r.handling = t.Context()
	}
	b.Handle(t.Context(), r.handling, cfg.Settings, cfg.targets, batch)
	b.Deliver(t.Context())
}

func (r *fakeRoute) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(r.calls, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestReports: progress is reported before the next slow operation, and not at the end of the
// batch.
func TestReports(t *testing.T) {
	r := &fakeRoute{}
	r.run(t, spec.Settings{}, []sinkFunc{r.noted("one")}, "a", "b")
	r.expect(t, "write 2 to one")

	r = &fakeRoute{}
	r.run(t, spec.Settings{}, []sinkFunc{r.noted("one"), r.noted("two"), nil}, "a")
	r.expect(t, "write 1 to one", "report a 1", "write 1 to two", "report a 11", "pass on a")

	r = &fakeRoute{}
	rejects := func([]event.Event) []error { return []error{nil, plugins.Reject(errors.New("no"))} }
	entries := r.run(t, spec.Settings{}, []sinkFunc{rejects}, "a", "b")
	r.expect(t, "report a 1", "report b 0", "refused b", "letter b sink0: no")
	if e := entries[1].Progress; e.State != queue.Done || e.Outcome != queue.DeadLettered {
		t.Errorf("got %+v", e)
	}
}

// TestWith: the handler, or the event of a route without one, gets the values of with. A delta
// whose values cannot be made is rejected without a retry; the others of its batch are delivered.
func TestWith(t *testing.T) {
	// Guarantee: route-with
	with := func(_ context.Context, d *event.Delta) ([]byte, error) {
		if d.Key().Name == "bad" {
			return nil, errors.New("there is no such field")
		}
		return []byte(`{"name":"` + d.Key().Name + `"}`), nil
	}
	for name, handler := range map[string]plugins.Handler{"a handler": echo{}, "no handler": nil} {
		r := &fakeRoute{}
		var got []string
		sink := func(events []event.Event) []error {
			for _, e := range events {
				got = append(got, string(e.Data))
			}
			return nil
		}
		entries := r.run(t, spec.Settings{Handler: handler, With: with}, []sinkFunc{sink}, "a", "bad", "c")
		if len(got) != 2 || !strings.Contains(got[0], `"with":{"name":"a"}`) || !strings.Contains(got[1], `"with":{"name":"c"}`) {
			t.Errorf("%s: %q", name, got)
		}
		if e := entries[1].Progress; e.Outcome != queue.DeadLettered || e.Attempts != 1 || entries[1].Delta.With != nil {
			t.Errorf("%s: %+v", name, e)
		}
		if !strings.Contains(strings.Join(r.calls, "\n"), "letter bad : with: there is no such field") {
			t.Errorf("%s: %q", name, r.calls)
		}
	}
}

// TestWithEnds: a delta whose values are not made before the handling ends is pending as before.
func TestWithEnds(t *testing.T) {
	r := &fakeRoute{}
	handling, end := context.WithCancel(t.Context())
	end()
	r.handling = handling
	with := func(ctx context.Context, _ *event.Delta) ([]byte, error) { return nil, ctx.Err() }
	entries := r.run(t, spec.Settings{With: with}, []sinkFunc{r.noted("one")}, "a")
	if e := entries[0].Progress; e.State != queue.Later || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	r.expect(t)
}

// echo makes an event of each delta as a route without a handler does.
type echo struct{}

func (echo) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		results[i].Events = []plugins.Emit{{Data: event.Payload(d)}}
	}
	return results, nil
}

func (echo) Close(context.Context) error { return nil }

// TestBadSinks: a sink that violates its contract counts as unavailable, and no delta of the batch
// is lost.
func TestBadSinks(t *testing.T) {
	for name, sink := range map[string]sinkFunc{
		"panics":        func([]event.Event) []error { panic("secret") },
		"too few":       func([]event.Event) []error { return []error{nil} },
		"too many":      func([]event.Event) []error { return make([]error, 3) },
		"not now":       func([]event.Event) []error { return []error{errors.New("x"), errors.New("y")} },
		"takes neither": func([]event.Event) []error { return []error{plugins.Postpone(errors.New("x"), 0), errors.New("y")} },
	} {
		r := &fakeRoute{}
		settings := spec.Settings{Retry: spec.Retry{Backoff: time.Second, Max: time.Second, MaxAge: time.Hour, Exact: true}}
		for _, e := range r.run(t, settings, []sinkFunc{sink}, "a", "b") {
			if e.Progress.State != queue.Later || e.Progress.Closed != 0 || e.Progress.Delay != time.Second || e.Progress.Tries != 1 {
				t.Errorf("%s: %+v", name, e.Progress)
			}
		}
		r.expect(t)
	}
}

// TestOnFailure: a rejected delta becomes a dead letter, is dropped, or pauses the route, which
// keeps it.
func TestOnFailure(t *testing.T) {
	rejects := func([]event.Event) []error { return []error{plugins.Reject(errors.New("no"))} }
	for policy, want := range map[spec.OnFailure]struct {
		call    string
		state   queue.State
		outcome queue.Outcome
	}{
		spec.DeadLetter: {"letter a sink0: no", queue.Done, queue.DeadLettered},
		spec.Drop:       {"", queue.Done, queue.Dropped},
		spec.Pause:      {"pause a sink0 false", queue.Later, queue.Delivered},
	} {
		r := &fakeRoute{}
		entries := r.run(t, spec.Settings{OnFailure: policy}, []sinkFunc{rejects}, "a")
		calls := []string{"report a 0", "refused a"}
		if want.call != "" {
			calls = append(calls, want.call)
		}
		r.expect(t, calls...)
		if e := entries[0].Progress; e.State != want.state || e.Outcome != want.outcome {
			t.Errorf("policy %d: %+v", policy, e)
		}
	}
}
