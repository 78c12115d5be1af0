package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// BenchmarkLog measures a change of the status of a pod of 5 KB with one decision: the part of the
// delta's path alone, and with the writer; and the bytes on disk for each change. 1,000 pods change
// in turn.
func BenchmarkLog(b *testing.B) {
	const pods = 1000
	states := make([][2]*event.Object, pods)
	for i := range states {
		for version := range 2 {
			states[i][version] = status(b, i, version)
		}
	}
	l := history.Open(history.Config{Dir: b.TempDir(), Clock: timer.NewFake(time.Unix(1_800_000_000, 0)), Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}, usual)
	ctx, stop := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { l.Run(ctx) })
	change := func(n int) {
		i, version := n%pods, n/pods%2
		d := &event.Delta{Source: "pods", Op: event.Updated, Old: states[i][version], New: states[i][1-version], Seen: time.Now()}
		l.Delta(d)
		l.Decided(&history.Decision{
			Object: history.ObjectOf(d), Route: "crashes", Op: d.Op, Version: d.New.ResourceVersion(), Outcome: history.Delivered, Seen: d.Seen, Matched: d.Seen,
			Taken: d.Seen, Events: 1, Steps: []history.Step{{Kind: history.Deliver, Name: "hook", At: d.Seen, Took: time.Millisecond, Size: 1}},
		})
		if n%500 == 499 {
			must.Succeed(b, l.Sync(b.Context()))
		}
	}
	for n := range pods {
		change(n)
	}
	must.Succeed(b, l.Sync(b.Context()))
	before, n := l.Bytes(), 0
	b.ReportAllocs()
	for b.Loop() {
		change(pods + n)
		n++
	}
	must.Succeed(b, l.Sync(b.Context()))
	b.ReportMetric(float64(l.Bytes()-before)/float64(n), "bytes/change")
	stop()
	ended.Wait()
}

// status returns a pod in one of two states.
func status(t testing.TB, i, version int) *event.Object {
	text := fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"web-%d","uid":"0b1c2d3e-4f50-6172-8394-%012d","resourceVersion":"%d","labels":{"app":"web-%d"}},"spec":{"nodeName":"n%d"`,
		i, i, 1_000_000+2*i+version, i%50, i%10)
	for field := range 50 {
		text += fmt.Sprintf(`,"field%d":{"name":"a name of some length","values":["one","two",{"three":%d}]}`, field, i*field)
	}
	ready, reason := "True", "Ready"
	if version == 1 {
		ready, reason = "False", "ContainersNotReady"
	}
	at := time.Unix(int64(1_800_000_000+i*37+version*61), 0).UTC().Format(time.RFC3339)
	text += fmt.Sprintf(`},"status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True","lastTransitionTime":"2026-11-30T11:00:00Z"},`+
		`{"type":"Ready","status":%q,"reason":%q,"lastTransitionTime":%q},{"type":"ContainersReady","status":%q,"reason":%q,"lastTransitionTime":%q}],"restarts":%d}}`,
		ready, reason, at, ready, reason, at, i+version)
	o, err := event.ParseObject(pods, text)
	must.Succeed(t, err)
	return o
}
