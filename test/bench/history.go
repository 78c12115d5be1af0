package main

import (
	"fmt"
	"os"

	"github.com/deltarouter/deltarouter/test/bench/report"
)

const (
	historyRoute = "routes: [{name: r, from: pods, ops: updated, filter: object.status.phase != \"\", " + jobEmit + ", to: %s, overflow: block}]\n"
	delivered    = `deltarouter_route_deltas_total{result="delivered"`
)

// compareHistory compares whole routers with and without the history, both with a checkpoint, as
// throughput does: with a filter and a webhook, with a sink that discards, and with the cache only.
// The updates are those of pods of 5 KB whose status changes.
func compareHistory(out *report.Report, n, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	url, stop, err := startReceiver()
	if err != nil {
		return err
	}
	defer stop()
	b := &routers{dir: dir, objects: n, sink: fmt.Sprintf(jobSink, url)}
	if err := b.build(); err != nil {
		return err
	}
	t := report.Table{
		Part: "history", Title: "The cost of the history",
		Text: fmt.Sprintf("Two routers with a state folder, one with `history: off`, get the same updates as fast as they take them: pods of 5 KB whose status changes. "+
			"The figures are those with the history, divided by those without it in the same round: medians of %d rounds, with %d pods. "+
			"The bytes are those of the files, for an update and its decision.", rounds, n),
		Labels: []string{"work"},
		Columns: []report.Column{
			{Name: "updates/s off", Format: "%.0f"},
			{Name: "updates/s on", Format: "%.0f"},
			{Name: "CPU µs off", Format: "%.1f"},
			{Name: "CPU µs on", Format: "%.1f"},
			{Name: "updates/s", Format: "%.2f", Ratio: true},
			{Name: "CPU per update", Format: "%.2f", Ratio: true},
			{Name: "bytes on disk", Format: "%.0f", Ratio: true},
		},
	}
	for _, w := range []workload{
		{"a filter and a webhook", fmt.Sprintf(historyRoute, "out"), delivered},
		{"a filter and discard", fmt.Sprintf(historyRoute, "none"), delivered},
		workloads()[1],
	} {
		row, bytes, err := b.turns(w, rounds, withState, everything)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		row.Figures = append(row.Figures, bytes)
		t.Rows = append(t.Rows, row)
	}
	return out.Add(t)
}
