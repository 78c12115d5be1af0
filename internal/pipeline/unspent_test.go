package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// some is a handler that makes no event of objects named "…-none", drops "…-drop", and fails on
// "…-fail".
var some = handleEach(func(d *event.Delta) plugins.Result {
	switch name := d.Key().Name; {
	case strings.HasSuffix(name, "-none"):
		return plugins.Result{}
	case strings.HasSuffix(name, "-drop"):
		return plugins.Result{Verdict: plugins.Drop}
	case strings.HasSuffix(name, "-fail"):
		return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(errBad)}
	}
	return plugins.Result{Events: []plugins.Emit{{Data: fmt.Appendf(nil, `{"suppressed":%d}`, d.Suppressed)}}}
})

// TestLimitUnspent: a delta without an event does not count, and the next delivered one has the
// suppressed count. Delivered deltas count as before.
func TestLimitUnspent(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := open(t, spec.Settings{Sinks: to(s), Handler: some, Limit: spec.Limit{Key: initials, Every: 10 * time.Minute, Burst: 2}})
		version := 0
		admit := func(names ...string) {
			for _, name := range names {
				version++
				b.admit(delta(t, event.Updated, name, 0, version))
			}
			if version == len(names) {
				b.Start(t.Context()) // with one batch
			}
			pass(time.Second)
		}
		// the third is suppressed: the others may result in events when it is evaluated
		admit("a1-none", "a2-drop", "a3-none")
		admit("a4-none")
		admit("a5", "a6", "a7", "a8-none")
		pass(10 * time.Minute)
		admit("a9-drop")
		admit("a10")
		admit("a11")
		equal(t, "sink", reported(t, s), "a5@5 +1", "a6@6", "a10@10 +2")
		b.balanced("route0")
	})
}

// TestLimitFailed: a delta on which the handler fails does not count, so that a bad object does not
// suppress good ones. With a condition, the next suppressed object is reported in its place.
func TestLimitFailed(t *testing.T) {
	// Guarantee: limit
	for name, onFailure := range map[string]spec.OnFailure{"drop": spec.Drop, "dead letter": spec.DeadLetter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, held := &recordingSink{}, &recordingSink{}
				limit := spec.Limit{Key: initials, Every: time.Hour}
				b := open(t,
					spec.Settings{Sinks: to(s), Handler: some, OnFailure: onFailure, Limit: limit},
					spec.Settings{Sinks: []spec.NamedSink{{Name: "held", Sink: held}}, Handler: some, OnFailure: onFailure, Limit: limit, Ops: edges, Existing: true, When: spec.When{Filter: whenOn, Version: "1"}},
				)
				b.admit(conditionDelta(t, event.Added, "b1-fail", 1, true), conditionDelta(t, event.Added, "b2", 2, true))
				b.Start(t.Context()) // with one batch
				pass(time.Second)
				for i, name := range []string{"a1-fail", "a2", "a3"} {
					b.admit(conditionDelta(t, event.Added, name, i+3, true))
					if i == 0 {
						pass(time.Second)
					}
				}
				pass(time.Minute)
				equal(t, "sink", reported(t, s), "a2@4")
				equal(t, "sink of the condition", reported(t, held), "b2@2", "a2@4")
				pass(time.Hour)
				b.admit(conditionDelta(t, event.Added, "b3", 6, true))
				pass(time.Second)
				equal(t, "an hour later", reported(t, s), "a2@4", "b3@6 +1")
				equal(t, "of the condition", reported(t, held), "b2@2", "a2@4", "a3@5", "b3@6")
				b.balanced("route0")
				b.balanced("route1")
			})
		})
	}
}

// TestLimitRefused: a delta that a sink rejects counts, even if it becomes a dead letter.
func TestLimitRefused(t *testing.T) {
	for name, onFailure := range map[string]spec.OnFailure{"drop": spec.Drop, "dead letter": spec.DeadLetter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refusing := true
				s := &recordingSink{refuse: func(event.Event) error {
					if refusing {
						return plugins.Reject(errBad)
					}
					return nil
				}}
				b := start(t, spec.Settings{Sinks: to(s), Handler: some, OnFailure: onFailure, Limit: spec.Limit{Key: initials, Every: time.Minute}})
				b.admit(delta(t, event.Added, "a1", 0, 1))
				pass(time.Second)
				refusing = false
				b.admit(delta(t, event.Added, "a2", 0, 2))
				pass(time.Minute)
				b.admit(delta(t, event.Added, "a3", 0, 3))
				pass(time.Second)
				equal(t, "sink", reported(t, s), "a3@3 +1")
			})
		})
	}
}

// TestLimitUnspentGroup: the same for a group.
func TestLimitUnspentGroup(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		counts := handlerFunc(func(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
			results := make([]plugins.Result, len(batch))
			if last := batch[len(batch)-1]; len(batch) > 2 {
				results[len(batch)-1].Events = []plugins.Emit{{Data: fmt.Appendf(nil, `{"suppressed":%d}`, last.Suppressed)}}
			}
			return results, nil
		})
		b := start(t, spec.Settings{
			Name: "r", Sinks: to(s), Key: initials, Grouped: true, Joint: true, Handler: counts,
			Batch: spec.Batch{Size: 10, Wait: time.Minute}, Limit: spec.Limit{Key: initials, Every: 5 * time.Minute},
		})
		version := 0
		admit := func(n int) {
			for i := range n {
				version++
				b.admit(delta(t, event.Updated, fmt.Sprint("a", i), 0, version))
			}
			pass(time.Minute)
		}
		admit(1)
		admit(2)
		admit(3)
		admit(2)
		admit(4)
		pass(5 * time.Minute)
		admit(3)
		equal(t, "sink", reported(t, s), "a2@6", "a2@15 +6")
		b.balanced("r")
	})
}

// TestLimitHandlerGroup: with a handler, too, the limit counts a group as one, and all of it passes
// or nothing. The group counts if any of its deltas results in an event.
func TestLimitHandlerGroup(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{
			Name: "r", Sinks: to(s), Key: initials, Grouped: true, Handler: some,
			Batch: spec.Batch{Size: 10, Wait: time.Minute}, Limit: spec.Limit{Key: initials, Every: 5 * time.Minute},
		})
		version := 0
		admit := func(names ...string) {
			for _, name := range names {
				version++
				b.admit(delta(t, event.Updated, name, 0, version))
			}
			pass(time.Minute)
		}
		admit("a1", "a2", "b1", "a3-none")
		admit("a4", "a5-none")
		pass(3 * time.Minute)
		admit("a6", "a7", "a8")
		equal(t, "sink", reported(t, s), "a1@1", "a2@2", "b1@3", "a6@7", "a7@8", "a8@9 +2")
		b.balanced("r")
	})
}

// TestLimitUnspentFold: deltas that passed the limit and were coalesced into nothing do not count.
func TestLimitUnspentFold(t *testing.T) {
	// Guarantee: limit
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		s := &recordingSink{before: func(context.Context) { <-stuck }}
		b := start(t, spec.Settings{
			Sinks: to(s), Deliver: spec.Latest, Batch: spec.Batch{Size: 1}, Limit: spec.Limit{Key: initials, Every: time.Hour, Burst: 2},
		})
		b.admit(delta(t, event.Added, "z", 0, 1)) // keeps the worker busy
		pass(time.Second)
		b.admit(deltaOf(t, event.Added, "a1", "one", 0, 2), deltaOf(t, event.Deleted, "a1", "one", 2, 0))
		b.admit(delta(t, event.Added, "a2", 0, 3), delta(t, event.Added, "a3", 0, 4), delta(t, event.Added, "a4", 0, 5))
		close(stuck)
		pass(time.Second)
		equal(t, "sink", reported(t, s), "z@1", "a2@3", "a3@4")
		b.balanced("route0")
	})
}

// TestLimitUnspentCrash: a cut contains the pending deltas and the limit of one moment. After a
// crash a pending delta counts, if it was not known yet that it results in no event.
func TestLimitUnspentCrash(t *testing.T) {
	// Guarantee: limit-kept
	synctest.Test(t, func(t *testing.T) {
		k, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		stuck := make(chan struct{})
		r := spec.Settings{Name: "r", Sinks: to(s), Limit: spec.Limit{Key: initials, Every: time.Hour}, Batch: spec.Batch{Size: 1}}
		r.Handler = handlerFunc(func(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
			if strings.HasPrefix(batch[0].Key().Name, "b") {
				select {
				case <-stuck:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return some(ctx, batch)
		})
		runOnce(t, k, r, func(b *harness) {
			b.admit(delta(t, event.Added, "a-none", 0, 1), delta(t, event.Added, "b-none", 0, 2))
			pass(time.Second)
			k.cut(b)
		})
		close(stuck)
		runOnce(t, k, r, func(b *harness) {
			pass(time.Second)
			b.admit(delta(t, event.Added, "a1", 0, 3), delta(t, event.Added, "a2", 0, 4), delta(t, event.Added, "b1", 0, 5))
			pass(time.Second)
			equal(t, "sink", reported(t, s), "a1@3")
		})
	})
}
