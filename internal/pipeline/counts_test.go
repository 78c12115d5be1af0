package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestCounts: the counts of a route survive restarts and another name. After a crash they are those
// of the last cut, like the backlog, so that no delta is counted twice. A route of an earlier
// version counts from its start.
func TestCounts(t *testing.T) {
	// Guarantee: counts
	synctest.Test(t, func(t *testing.T) {
		d := &flakyStore{fakeStore: fakeStore{}}
		begin := time.Now()
		s := &recordingSink{refuse: func(e event.Event) error {
			switch {
			case strings.HasPrefix(e.Subject, "default/bad"):
				return plugins.Reject(errors.New("no such channel"))
			case strings.HasPrefix(e.Subject, "default/down"):
				return errDown
			}
			return nil
		}}
		handler := handleEach(func(d *event.Delta) plugins.Result {
			if strings.HasPrefix(d.Key().Name, "drop") {
				return plugins.Result{Verdict: plugins.Drop}
			}
			return ok(d)
		})
		route := func(name string) spec.Settings {
			return spec.Settings{
				Name: name, ID: "r", Handler: handler, Sinks: to(s), Limit: spec.Limit{Every: time.Hour, Burst: 2}, Batch: spec.Batch{Size: 1},
				Deliver: spec.Latest, Retry: spec.Retry{Backoff: time.Hour, Max: time.Hour, Exact: true},
			}
		}
		run := func(name string, does func(b *harness)) {
			t.Helper()
			b := openAs(t, pipeline.Config{Store: d}, route(name))
			d.restore(b, "r")
			b.Start(t.Context())
			does(b)
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		expect := func(b *harness, want spec.Counts) {
			t.Helper()
			if got := b.Status()[0].Counts; got != want || !got.Since.Equal(want.Since) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
		first := spec.Counts{Since: begin, Matched: 7, Delivered: 3, Suppressed: 1, Dropped: 1, DeadLettered: 1, Failed: 2}
		run("r", func(b *harness) {
			for version := 1; version < 4; version++ {
				b.admit(delta(t, event.Updated, "a", version, version+1)) // the limit suppresses the last
				pass(time.Second)
			}
			b.admit(delta(t, event.Added, "bad", 0, 10), delta(t, event.Added, "drop", 0, 11), delta(t, event.Added, "b", 0, 12))
			pass(time.Second)
			b.admit(delta(t, event.Added, "down", 0, 13))
			pass(time.Second)
			expect(b, first)
			d.cut(b)
			b.admit(delta(t, event.Added, "c", 0, 14)) // after the cut: the crash loses it
			pass(time.Second)
		})
		run("renamed", func(b *harness) {
			pass(time.Second)
			first.Failed++ // the pending one is tried again
			expect(b, first)
			b.admit(delta(t, event.Added, "c", 0, 14)) // its source delivers it again
			pass(time.Second)
			first.Matched, first.Delivered = first.Matched+1, first.Delivered+1
			expect(b, first)
			if b.value("route_deltas_total", "renamed", "delivered") != 1 {
				t.Error("the metric is not that of the process")
			}
			d.cut(b)
			if cuts := b.Dirty(); len(cuts) > 0 {
				t.Errorf("without a change there is %v", cuts)
			}
		})
		pass(time.Minute)
		d.counts["r"] = checkpoint.RuleRecord{Kind: checkpoint.KindCounts, Value: []byte{1}}
		b := openAs(t, pipeline.Config{Store: d}, route("r"))
		if err := b.RestoreRules("r", []checkpoint.RuleRecord{d.counts["r"]}); err == nil || !strings.Contains(err.Error(), "they begin at 0") {
			t.Errorf("damage is %v", err)
		}
		expect(b, spec.Counts{Since: time.Now()})
	})
}
