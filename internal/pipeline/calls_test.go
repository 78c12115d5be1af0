package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// recordsOf describes the records of all dead letters.
func recordsOf(t *testing.T, letters []checkpoint.Letter) (all []string) {
	t.Helper()
	for _, l := range letters {
		if l.Call == nil {
			all = append(all, "none")
			continue
		}
		r, err := callrecord.Decode(l.Call)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d calls, delta %d %s", len(r.Calls), r.Delta, r.With))
	}
	return all
}

// recorded is a handler that fails each delta, with the record of one call for all.
func recorded(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	call := &callrecord.Record{Handler: "h", Calls: []callrecord.Call{{Batch: append([]*event.Delta{}, batch...)}}}
	results := make([]plugins.Result, len(batch))
	for i := range results {
		// the text is shortened, which must not lose the record
		err := plugins.Reject(errors.New(strings.Repeat("long ", 1000)))
		results[i] = plugins.Result{Verdict: plugins.Fail, Err: fmt.Errorf("%d: %w", i, callrecord.Attach(err, call.For(i)))}
	}
	return results, nil
}

// TestCallRecords: the dead letters of one call have its record once, and name the delta whose
// letter has it. Those of a route that gets Secrets have none.
func TestCallRecords(t *testing.T) {
	// Guarantee: call-replay
	for _, secret := range []bool{false, true} {
		t.Run(fmt.Sprintf("secret %t", secret), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, spec.Settings{Sinks: to(&recordingSink{}), Handler: handlerFunc(recorded), HandlerName: "h", Secret: secret})
				b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2), delta(t, event.Added, "c", 0, 3))
				b.Start(t.Context()) // with one batch
				b.drain()
				got := recordsOf(t, b.letters.all)
				if secret {
					equal(t, "records", got, "none", "none", "none")
					return
				}
				first := b.letters.all[0].Delta.String()
				equal(t, "records", got, "1 calls, delta 0 ", "0 calls, delta 1 "+first, "0 calls, delta 2 "+first)
			})
		})
	}
}

// TestCallRecordOfGroup: the first dead letter of a group has the record, and the others name it.
func TestCallRecordOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := groups(&timedSink{}, nil)
		r.Handler, r.HandlerName = handlerFunc(recorded), "h"
		b := start(t, r)
		b.admit(delta(t, event.Added, "a1", 0, 1), delta(t, event.Added, "a2", 0, 2), delta(t, event.Added, "a3", 0, 3))
		pass(10 * time.Second)
		b.drain()
		first := b.letters.all[0].Delta.String()
		equal(t, "records", recordsOf(t, b.letters.all), "1 calls, delta 2 ", "0 calls, delta 2 "+first, "0 calls, delta 2 "+first)
	})
}

// TestPausedCall: an entry that stays pending keeps no record.
func TestPausedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := &callrecord.Record{Handler: "h", Calls: []callrecord.Call{{Batch: []*event.Delta{delta(t, event.Added, "a", 0, 1)}}}}
		attached := callrecord.Attach(plugins.Reject(errors.New("oh")), made.For(0))
		b := start(t, spec.Settings{
			Name: "r", Sinks: to(&recordingSink{}), HandlerName: "h", OnFailure: spec.Pause,
			Handler: handlerFunc(func(context.Context, []*event.Delta) ([]plugins.Result, error) {
				return []plugins.Result{{Verdict: plugins.Fail, Err: attached}}, nil
			}),
		})
		b.admit(delta(t, event.Added, "a", 0, 1))
		pass(time.Hour)
		if callrecord.Of(attached) != nil {
			t.Error("the record is kept")
		}
	})
}
