package filters_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestAbsentInMany: several goroutines match an object without labels against many routes that want
// some. Each route counts each delta and logs one, with its own place; no filter is asked.
func TestAbsentInMany(t *testing.T) {
	// Guarantee: absent-in-filter
	const routes, watches, deltas = 50, 4, 25
	env := tableEnv(t)
	var log bytes.Buffer
	counted, entries := make([]uint64, routes), make([]filters.Entry, routes)
	for i := range entries {
		text := fmt.Sprintf([]string{`object.metadata.labels.team == "t%d"`, `object.metadata.labels["app"] == "a%d" && object.metadata.namespace == "default"`}[i%2], i)
		program, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(t, err)
		entries[i] = filters.Entry{Sources: []string{"pods"}, Ops: event.Ops(), Filter: filters.NewCEL(filters.CELConfig{
			Program: program, Log: slog.New(slog.NewTextHandler(&log, nil)), Absent: func(deltas uint64) { counted[i] += deltas },
			Place: placed(func(e *cel.EvalError) string { return fmt.Sprintf("config.yaml:%d:%d", i, e.Column) }),
		})}
	}
	table, d := filters.NewTable(entries), delta(t, "pods", event.Updated, "a")
	table.Match(t.Context(), d, nil) // logs, and counts at once
	var all sync.WaitGroup
	for range watches {
		all.Go(func() {
			for range deltas {
				if got := table.Match(t.Context(), d, nil); len(got) > 0 {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
	for i, n := range counted {
		if n != 1 {
			t.Errorf("route %d was visited for %d deltas, want 1", i, n)
		}
		for range 2 {
			table.Skipped(i)
			if want := uint64(1 + watches*deltas); counted[i] != want {
				t.Errorf("route %d counted %d deltas, want %d", i, counted[i], want)
			}
		}
		if n := strings.Count(log.String(), fmt.Sprintf("at=config.yaml:%d:", i)); n != 1 {
			t.Errorf("route %d logged %d deltas, want 1", i, n)
		}
	}
}
