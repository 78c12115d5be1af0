package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

var errBad = errors.New("not acceptable")

// counting returns a handler with a result of the given kind for the object "a", and counts its
// calls for it.
func counting(calls *int, result plugins.Result) handlerFunc {
	return handleEach(func(d *event.Delta) plugins.Result {
		if d.Key().Name == "a" {
			*calls++
			return result
		}
		return ok(d)
	})
}

func TestRejected(t *testing.T) {
	// Guarantee: no-silent-loss, handler-fails, never-succeeds
	tests := map[string]struct {
		result plugins.Result
		calls  int
	}{
		"fail":          {plugins.Result{Verdict: plugins.Fail, Err: errBad}, 4},
		"fail, no why":  {plugins.Result{Verdict: plugins.Fail}, 4},
		"retry":         {plugins.Result{Verdict: plugins.Retry}, 4},
		"unknown":       {plugins.Result{Verdict: 99}, 4},
		"deterministic": {plugins.Result{Verdict: plugins.Fail, Err: fmt.Errorf("trap: %w", plugins.Reject(errBad))}, 1},
	}
	outcomes := map[spec.OnFailure]string{spec.DeadLetter: metrics.DeadLettered, spec.Drop: metrics.Dropped}
	for name, test := range tests {
		for onFailure, outcome := range outcomes {
			t.Run(name+" "+outcome, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, calls := &recordingSink{}, 0
					b := start(t, spec.Settings{
						Sinks: to(s), Handler: counting(&calls, test.result), OnFailure: onFailure,
						Retry: spec.Retry{Attempts: 3, Backoff: time.Second},
					})
					begin := time.Now()
					b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "b", 1, 2))
					for b.Pending("route0") > 0 { // a drain would end the first pause
						pass(10 * time.Millisecond)
					}
					if calls != test.calls {
						t.Errorf("%d calls, want %d", calls, test.calls)
					}
					if took := time.Since(begin); test.calls == 4 && (took < 3500*time.Millisecond || took > 7100*time.Millisecond) {
						t.Errorf("took %v, want 1s + 2s + 4s, less up to half at random", took)
					}
					equal(t, "sink", s.got(), "updated b@2")
					if outcome == metrics.DeadLettered {
						equal(t, "dead letters", b.letters.got(), "a@1 ")
						if l := b.letters.all[0]; l.Attempts != test.calls || l.Error == "" || l.Route != "route0" {
							t.Errorf("got %+v", l)
						}
					}
					if n := b.value("route_deltas_total", "route0", outcome); n != 1 {
						t.Errorf("%v %s, want 1", n, outcome)
					}
					b.balanced("route0")
				})
			})
		}
	}
}

// TestRetryHoldsItsKey: deltas behind a retried delta of their key wait, even if they were in the
// same batch and handled; they are handled again, and other keys continue.
func TestRetryHoldsItsKey(t *testing.T) {
	// Guarantee: failure-repeats-backlog
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		var seen []string
		b := open(t, spec.Settings{
			Sinks: to(s), Retry: spec.Retry{Attempts: 1, Backoff: time.Second},
			Handler: handleEach(func(d *event.Delta) plugins.Result {
				version := d.Object().ResourceVersion()
				first := !slices.Contains(seen, version)
				seen = append(seen, version)
				if version == "1" && first {
					return plugins.Result{Verdict: plugins.Retry}
				}
				return ok(d)
			}),
		})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3))
		b.Start(t.Context()) // with one batch
		pass(100 * time.Millisecond)
		equal(t, "at first", s.got(), "added b@3")
		b.admit(delta(t, event.Updated, "a", 2, 4))
		b.drain()
		equal(t, "in the end", s.got(), "added b@3", "added a@1", "updated a@2", "updated a@4")
		equal(t, "handled", seen, "1", "2", "3", "1", "2", "4")
	})
}

// TestRetryTakesNoWorker: one worker, many deltas that are tried again later, and one that is not.
func TestRetryTakesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{
			Sinks: to(s), Retry: spec.Retry{Attempts: 1000}, Batch: spec.Batch{Size: 1},
			Handler: handleEach(func(d *event.Delta) plugins.Result {
				if strings.HasPrefix(d.Key().Name, "later") {
					return plugins.Result{Verdict: plugins.Retry, Err: plugins.RetryLater(errBad, time.Hour)}
				}
				return ok(d)
			}),
		})
		for i := range 100 {
			b.admit(delta(t, event.Added, fmt.Sprint("later", i), 0, 1))
		}
		b.admit(delta(t, event.Added, "now", 0, 2))
		pass(time.Second)
		equal(t, "sink", s.got(), "added now@2")
	})
}

// TestBatchErrors: the delta that makes a handler fail as a whole is found by handling each delta
// of the batch alone.
func TestBatchErrors(t *testing.T) {
	// Guarantee: handler-fails
	tests := map[string]handlerFunc{
		"error":         func(context.Context, []*event.Delta) ([]plugins.Result, error) { return nil, plugins.Reject(errBad) },
		"panic":         func(context.Context, []*event.Delta) ([]plugins.Result, error) { panic("body of an object") },
		"runtime panic": func(_ context.Context, b []*event.Delta) ([]plugins.Result, error) { _ = b[len(b)]; return nil, nil },
		"too few":       func(context.Context, []*event.Delta) ([]plugins.Result, error) { return nil, nil },
		"too many":      func(context.Context, []*event.Delta) ([]plugins.Result, error) { return make([]plugins.Result, 9), nil },
	}
	for name, broken := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, calls := &recordingSink{}, 0
				h := handlerFunc(func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
					calls++
					for _, d := range batch {
						if d.Key().Name == "poison" {
							return broken(ctx, batch)
						}
					}
					return handleEach(ok)(ctx, batch)
				})
				b := open(t, spec.Settings{Sinks: to(s), Handler: h, HandlerName: "h", Retry: spec.Retry{Attempts: 2}})
				b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "poison", 0, 2), delta(t, event.Updated, "a", 1, 3),
					delta(t, event.Updated, "poison", 1, 4), delta(t, event.Added, "b", 0, 5))
				b.Start(t.Context()) // with one batch
				b.drain()
				got := s.got()
				slices.Sort(got)
				equal(t, "sink", got, "added a@1", "added b@5", "updated a@3")
				equal(t, "dead letters", b.letters.got(), "poison@2 ", "poison@4 ")
				want := 1 + 3 + 2*3 // all, the good ones alone, the bad ones thrice
				if name == "error" {
					want = 1 + 3 + 2 // or once, if it is permanent
				}
				if calls != want {
					t.Errorf("%d calls, want %d", calls, want)
				}
				// the router names the handler where it breaks its contract; an error of the
				// handler does itself
				if text := b.letters.all[0].Error; strings.Contains(text, `"h"`) == (name == "error") || strings.Contains(text, "body") {
					t.Errorf("the error is %q", text)
				}
				b.balanced("route0")
			})
		})
	}
}

func TestFilterErrors(t *testing.T) {
	// Guarantee: never-succeeds, failed-rule-no-match
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Sinks: to(s), Retry: spec.Retry{Attempts: 3}, Filter: filters.Func(
			func(_ context.Context, d *event.Delta) (bool, error) {
				if d.Key().Name == "a" {
					return false, errBad
				}
				return true, nil
			})})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
		b.drain()
		equal(t, "sink", s.got(), "added b@2")
		equal(t, "dead letters", b.letters.got(), "a@1 ")
		if l := b.letters.all[0]; !strings.Contains(l.Error, errBad.Error()) {
			t.Errorf("got %s", l.Error)
		}
		b.balanced("route0")
	})
}

func TestPause(t *testing.T) {
	// Guarantee: no-silent-loss
	synctest.Test(t, func(t *testing.T) {
		s0, s1, calls := &recordingSink{}, &recordingSink{}, 0
		b := start(t,
			spec.Settings{Sinks: to(s0), OnFailure: spec.Pause, Handler: counting(&calls, plugins.Result{Verdict: plugins.Fail, Err: errBad})},
			spec.Settings{Sinks: to(s0, s1)[1:]},
		)
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Hour)
		b.admit(delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3))
		pass(time.Hour)
		equal(t, "paused", s0.got())
		equal(t, "the other", s1.got(), "added a@1", "updated a@2", "added b@3")
		status := b.Status()[0]
		if status.Pending != 3 || !strings.Contains(status.Paused, "added pods default/a") || !strings.Contains(status.Paused, errBad.Error()) || calls != 1 {
			t.Errorf("%d calls, %+v", calls, status)
		}
		if b.Status()[1].Paused != "" {
			t.Error("the other route is paused too")
		}
		begin := time.Now()
		if err := b.Drain(t.Context()); err == nil || time.Since(begin) > time.Minute {
			t.Errorf("Drain waits for a paused route, or says nothing of it: %v", err)
		}
	})
}

// TestSinksAreIndependent: an event that one sink refuses is retried at that sink only.
func TestSinksAreIndependent(t *testing.T) {
	// Guarantee: sink-retry-alone
	synctest.Test(t, func(t *testing.T) {
		down := true
		s0 := &recordingSink{refuse: func(e event.Event) error {
			if down && strings.Contains(string(e.Data), "1") {
				return errDown
			}
			return nil
		}}
		s1, calls := &recordingSink{}, 0
		b := start(t, spec.Settings{Sinks: to(s0, s1), Handler: counting(&calls, plugins.Result{Events: []plugins.Emit{
			{Data: []byte("0")}, {Data: []byte("1")}, {Data: []byte("2")},
		}})})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Minute)
		if len(s0.got()) != 2 || len(s1.got()) != 3 || b.Pending("route0") != 1 {
			t.Errorf("s0 %v, s1 %v, pending %d", s0.got(), s1.got(), b.Pending("route0"))
		}
		down = false
		b.drain()
		var data []string
		for _, e := range s0.events {
			data = append(data, string(e.Data))
		}
		equal(t, "s0", data, "0", "2", "1")
		if len(s1.events) != 3 || calls != 1 {
			t.Errorf("s1 %v, handled %d times", s1.got(), calls)
		}
		if n := b.value("route_events_total", "route0", "s0", "retried"); n < 2 {
			t.Errorf("%v retried", n)
		}
		b.balanced("route0")
	})
}

// TestSinkRejects: a 4xx causes a dead letter at once, for that sink; the delta counts as
// dead-lettered, once.
func TestSinkRejects(t *testing.T) {
	// Guarantee: no-silent-loss, sink-rejects
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s0 := &recordingSink{refuse: func(e event.Event) error {
			if e.Subject == "default/a" {
				tries++
				return plugins.Reject(errBad)
			}
			return nil
		}}
		s1 := &recordingSink{}
		b := open(t, spec.Settings{Sinks: to(s0, s1), Retry: spec.Retry{Attempts: 3}})
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Updated, "a", 1, 2), delta(t, event.Added, "b", 0, 3))
		b.Start(t.Context()) // with one batch
		b.drain()
		equal(t, "s0", s0.got(), "added b@3")
		equal(t, "s1", s1.got(), "added a@1", "added b@3", "updated a@2")
		equal(t, "dead letters", b.letters.got(), "a@1 s0", "a@2 s0")
		if n := b.value("route_deltas_total", "route0", metrics.DeadLettered); n != 2 || tries != 2 {
			t.Errorf("%v dead-lettered after %d tries", n, tries)
		}
		b.balanced("route0")
	})
}

func TestMaxAge(t *testing.T) {
	// Guarantee: sink-unavailable
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{refuse: func(event.Event) error { return errDown }}
		b := start(t, spec.Settings{Sinks: to(s), Retry: spec.Retry{MaxAge: time.Hour}})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(59 * time.Minute)
		equal(t, "early", b.letters.got())
		pass(2 * time.Minute)
		equal(t, "late", b.letters.got(), "a@1 s0")
		b.balanced("route0")
	})
}

// TestDeadLettersFail: a delta whose dead letter cannot be written stays pending, and neither the
// sink nor the handler gets it again.
func TestDeadLettersFail(t *testing.T) {
	// Guarantee: no-silent-loss
	synctest.Test(t, func(t *testing.T) {
		full, tries := true, 0
		s := &recordingSink{refuse: func(e event.Event) error {
			if e.Subject == "default/b" {
				tries++
				return plugins.Reject(errBad)
			}
			return nil
		}}
		calls := 0
		b := start(t, spec.Settings{Sinks: to(s), Handler: counting(&calls, plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errBad)})})
		b.letters.refuse = func(checkpoint.Letter) error {
			if full {
				return errors.New("no space left on device")
			}
			return nil
		}
		b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Updated, "b", 2, 3), delta(t, event.Added, "c", 0, 4))
		pass(time.Hour)
		equal(t, "sink", s.got(), "added c@4")
		if pending := b.Pending("route0"); pending != 3 || calls != 1 || tries != 1 {
			t.Errorf("%d pending, handled %d times, sent %d times", pending, calls, tries)
		}
		full = false
		b.drain()
		got := b.letters.got()
		slices.Sort(got)
		equal(t, "dead letters", got, "a@1 ", "b@2 s0", "b@3 s0")
		b.balanced("route0")
	})
}

// TestOneRouteDoesNotSlowAnother: with a sink that hangs, a handler that hangs, one that fails, and
// a full queue, the last route still delivers each delta within its batch.wait.
func TestOneRouteDoesNotSlowAnother(t *testing.T) {
	// Guarantee: route-isolation, sink-holds-watch
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) { <-ctx.Done() }
		s := &recordingSink{}
		b := start(t,
			spec.Settings{Sinks: []spec.NamedSink{{Name: "hangs", Sink: &recordingSink{before: hang}}}, Capacity: 2},
			spec.Settings{Sinks: to(s), Capacity: 2, Overflow: spec.DropOldest, Handler: handlerFunc(
				func(ctx context.Context, _ []*event.Delta) ([]plugins.Result, error) {
					hang(ctx)
					return nil, ctx.Err()
				})},
			spec.Settings{Sinks: to(s), Capacity: 2, Handler: handleEach(func(*event.Delta) plugins.Result {
				return plugins.Result{Verdict: plugins.Fail}
			}), OnFailure: spec.Pause},
			spec.Settings{Sinks: to(s), Batch: spec.Batch{Size: 64, Wait: 10 * time.Millisecond}},
		)
		for version := 1; version < 1000; version++ {
			begin := time.Now()
			b.admit(delta(t, event.Updated, fmt.Sprint("x", version%7), version, version+1))
			if took := time.Since(begin); took > 0 {
				t.Fatalf("Admit took %v", took)
			}
			pass(10 * time.Millisecond)
			if len(s.got()) != version {
				t.Fatalf("%d delivered after %d deltas", len(s.events), version)
			}
		}
	})
}

// TestLogsHoldNoBodies: no failure writes text of an object to the log.
func TestLogsHoldNoBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p, err := pipeline.New(pipeline.Config{
			Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Routes: []spec.Settings{
				{Name: "letters", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&recordingSink{refuse: func(event.Event) error { return plugins.Reject(errBad) }})},
				{Name: "drop", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&malformedSink{&brokenCalls{}}), OnFailure: spec.Drop, Retry: spec.Retry{MaxAge: 1}},
				{Name: "pause", Sources: []string{"pods"}, Ops: event.Ops(), Sinks: to(&recordingSink{}), OnFailure: spec.Pause, Handler: handleEach(
					func(d *event.Delta) plugins.Result { panic(string(d.Object().JSON())) })},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Start(t.Context())
		o, err := event.ParseObject(pods, `{"metadata":{"name":"a","namespace":"default","uid":"u"},"data":"CANARY"}`)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := p.Admit(t.Context(), &event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now().Add(-time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		commit.Commit()
		pass(time.Hour)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "CANARY") {
			t.Errorf("the log holds an object: %s", log.String())
		}
		for _, want := range []string{"delta lost", "added pods default/a", "route paused"} {
			if strings.Count(log.String(), want) == 0 {
				t.Errorf("the log does not say %q: %s", want, log.String())
			}
		}
		if strings.Contains(log.String(), "dead letter") {
			t.Errorf("the log says that what is lost is kept: %s", log.String())
		}
		if n := strings.Count(log.String(), "route paused"); n != 1 {
			t.Errorf("the pause is logged %d times", n)
		}
	})
}
