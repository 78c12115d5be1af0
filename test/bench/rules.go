package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// manyPending is the number of objects with a pending `for`.
const manyPending = 1_000_000

// compareRules measures the cost of rules about time: memory and time of pending conditions, and a
// route with when beside one with filter.
func compareRules(out *report.Report, rounds int) error {
	var memory, median []float64
	for range rounds {
		bytes, pair, err := pendingConditions(manyPending)
		if err != nil {
			return err
		}
		memory, median = append(memory, bytes), append(median, float64(pair))
	}
	slices.Sort(memory)
	slices.Sort(median)
	fmt.Printf("%d objects wait for `for` to be over: %.0f bytes each, timer and state; to begin and cancel one more takes %v (median)\n",
		manyPending, memory[len(memory)/2], time.Duration(median[len(median)/2]))
	return compareWhen(out, rounds)
}

// pendingConditions returns the memory of a pending condition, and the time for beginning and
// ending one among them.
func pendingConditions(n int) (bytes float64, pair time.Duration, err error) {
	resource := &event.Resource{Cluster: "bench", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
	const more = 100_000 // objects that begin and end
	objects := make([]*event.Object, n+more)
	for i := range objects {
		if objects[i], err = event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"namespace":"team-%d","name":"pod-%d","uid":"u%d","resourceVersion":"%d"}}`, i%100, i, i, i+1)); err != nil {
			return 0, 0, err
		}
	}
	before := heap()
	wheel := timer.NewWheel(timer.Real())
	defer wheel.Close()
	conditions := rules.NewConditions(rules.ConditionConfig{Sources: []string{"pods"}, For: time.Hour}, wheel, rules.NewCensus(), nil, func(*rules.Conditions, *rules.Condition) {})
	now := time.Now()
	for i, o := range objects[:n] {
		d := event.Delta{Source: "pods", Op: event.Added, New: o}
		conditions.Observe(&d, true, false, "", now.Add(time.Duration(i)*time.Millisecond), nil)
	}
	_ = conditions.Dirty(now) // as after a cut
	bytes = float64(heap()-before) / float64(n)
	times := make([]time.Duration, 0, more)
	for _, o := range objects[n:] {
		begins, ends := event.Delta{Source: "pods", Op: event.Added, New: o}, event.Delta{Source: "pods", Op: event.Deleted, Old: o}
		begin := time.Now()
		conditions.Observe(&begins, true, false, "", now, nil)
		conditions.Observe(&ends, false, false, "", now, nil)
		times = append(times, time.Since(begin))
	}
	runtime.KeepAlive(conditions)
	runtime.KeepAlive(objects)
	slices.Sort(times)
	return bytes, times[len(times)/2], nil
}

// compareWhen compares the cost of a delta in a route with when, which tracks a hundredth of the
// objects, with the cost in a route with the same expression as its filter. Most deltas change
// nothing, as in a real cluster.
func compareWhen(out *report.Report, rounds int) error {
	const condition = `object.status.phase == "Running" && object.spec.containers.exists(c, c.image.contains("never")) || object.metadata.name.endsWith("-7")`
	costs := map[string][]time.Duration{}
	for range rounds {
		for _, kind := range []string{"filter", "when"} {
			cost, err := routeCost(kind, condition)
			if err != nil {
				return err
			}
			costs[kind] = append(costs[kind], cost)
		}
	}
	filter, when := medianTime(costs["filter"]), medianTime(costs["when"])
	return out.Add(report.Table{
		Part: "rules", Title: "Conditions",
		Text:   "CPU of a delta in a route with `when`, which tracks a hundredth of the objects, and in one with the same expression as its `filter`.",
		Labels: []string{"route with"},
		Columns: []report.Column{
			{Name: "CPU µs/delta", Format: "%.2f"}, {Name: "CPU", Format: "%.2f", Ratio: true},
		},
		Rows: []report.Row{
			{Labels: []string{"filter"}, Figures: []float64{micros(filter), 1}},
			{Labels: []string{"when"}, Figures: []float64{micros(when), float64(when) / float64(filter)}},
		},
	})
}

type nowhere struct{}

func (nowhere) Write(context.Context, []event.Event) []error { return nil }
func (nowhere) Close(context.Context) error                  { return nil }

func routeCost(kind, condition string) (time.Duration, error) {
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "bench", Sources: map[string][]string{"pods": nil}})
	if err != nil {
		return 0, err
	}
	usage := map[string]cel.Usage{"filter": cel.Filter, "when": cel.When}[kind]
	program, err := env.Compile(condition, usage, "pods")
	if err != nil {
		return 0, err
	}
	filter := filters.NewCEL(filters.CELConfig{Program: program, Absent: func(uint64) {}})
	route := spec.Settings{Name: kind, Sources: []string{"pods"}, Sinks: []spec.NamedSink{{Name: "none", Sink: plugins.Sink(nowhere{})}}}
	if kind == "when" {
		route.Ops, route.When = []event.Op{event.Entered, event.Left}, spec.When{Filter: filter, Version: "1"}
	} else {
		route.Ops, route.Filter = []event.Op{event.Added, event.Updated, event.Deleted}, filter
	}
	p, err := pipeline.New(pipeline.Config{Routes: []spec.Settings{route}})
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	p.Start(ctx)
	var all []*event.Delta
	for i := range 1000 {
		d, err := podDelta(i, wanted)
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	const times = 100
	begin := cpu()
	for range times {
		for _, d := range all {
			commit, err := p.Admit(ctx, d)
			if err != nil {
				return 0, err
			}
			if commit != nil {
				commit.Commit()
			}
		}
	}
	cost := (cpu() - begin) / time.Duration(times*len(all))
	return cost, p.Close(ctx)
}
