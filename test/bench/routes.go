package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

// The numbers of routes in the compared tables. Each delta matches three of them.
const (
	fewRoutes  = 10
	manyRoutes = 10_000
	deltas     = 1_000
)

// routeFilter is the filter of route number i: by a team's application, by a node, or by a
// namespace.
func routeFilter(i int) string {
	switch n := i / 3; i % 3 {
	case 0:
		return fmt.Sprintf(`object.metadata.labels["app"] == "app-%d" && object.status.phase == "Running"`, n)
	case 1:
		return fmt.Sprintf(`object.status.containerStatuses.exists(c, c.restartCount > 1) && object.spec.nodeName == "node-%d"`, n)
	default:
		return fmt.Sprintf(`op == "updated" && object.metadata.namespace in ["team-%d", "team-%d-stage"]`, n, n)
	}
}

// compareTables measures the CPU for finding the routes of a delta, among few routes and among
// many.
func compareTables(out *report.Report, rounds int) error {
	few, err := newTableBench(fewRoutes)
	if err != nil {
		return err
	}
	many, err := newTableBench(manyRoutes)
	if err != nil {
		return err
	}
	var times [2][]time.Duration
	var ratios []float64 // within a round: the load of others changes
	for range 20*rounds + 1 {
		var took [2]time.Duration
		for i, b := range []*tableBench{few, many} {
			if took[i], err = b.run(); err != nil {
				return err
			}
			times[i] = append(times[i], took[i])
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	ten, thousands := medianTime(times[0])/deltas, medianTime(times[1])/deltas
	ratio := median(ratios, func(r float64) float64 { return r })
	each := many.each(many.deltas[:5])
	unlabelled, err := many.missing(others)
	if err != nil {
		return err
	}
	bare, err := many.missing(none)
	if err != nil {
		return err
	}
	t := report.Table{
		Part: "routes", Title: "Many routes",
		Text: fmt.Sprintf("CPU to find the three routes that want a delta, as a multiple of that with %d routes. All filters compare a field with a constant. The last rows "+
			"are deltas of an object without the label that %d of the routes compare, and without any labels.", fewRoutes, (manyRoutes+2)/3),
		Labels: []string{"routes"},
		Columns: []report.Column{
			{Name: "CPU µs/delta", Format: "%.1f"},
			{Name: "CPU", Format: "%.1f", Ratio: true, Chart: &report.Chart{Name: "routes", Title: fmt.Sprintf("CPU to find the routes of a delta, as a multiple of that with %d routes", fewRoutes)}},
		},
	}
	for _, row := range []struct {
		label string
		took  time.Duration
		ratio float64
	}{
		{fmt.Sprint(fewRoutes), ten, 1},
		{fmt.Sprint(manyRoutes), thousands, ratio},
		{fmt.Sprint(manyRoutes, ", each filter evaluated"), each, float64(each) / float64(ten)},
		{fmt.Sprint(manyRoutes, ", without the label"), unlabelled, float64(unlabelled) / float64(ten)},
		{fmt.Sprint(manyRoutes, ", without labels"), bare, float64(bare) / float64(ten)},
	} {
		t.Rows = append(t.Rows, report.Row{Labels: []string{row.label}, Figures: []float64{micros(row.took), row.ratio}})
	}
	return out.Add(t)
}

// tableBench is a table of routes, and deltas that match three of them each.
type tableBench struct {
	routes int
	table  *filters.Table
	deltas []*event.Delta
}

func newTableBench(routes int) (*tableBench, error) {
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "bench", Sources: map[string][]string{"pods": nil}})
	if err != nil {
		return nil, err
	}
	entries := make([]filters.Entry, routes)
	for i := range entries {
		program, err := env.Compile(routeFilter(i), cel.Filter, "pods")
		if err != nil {
			return nil, err
		}
		entries[i] = filters.Entry{
			Sources: []string{"pods"}, Ops: event.SourceOps(),
			Filter: filters.NewCEL(filters.CELConfig{Program: program, Absent: func(uint64) {}}),
		}
	}
	b := &tableBench{routes: routes, table: filters.NewTable(entries)}
	for i := range deltas {
		d, err := podDelta(i%(routes/3), wanted)
		if err != nil {
			return nil, err
		}
		b.deltas = append(b.deltas, d)
	}
	return b, nil
}

// labels are those of the pod of a delta.
type labels int

const (
	wanted labels = iota // by a route
	others
	none
)

// podDelta is a change of a pod that matches the three routes of that number, or without the label
// two of them.
func podDelta(n int, has labels) (*event.Delta, error) {
	pod := examplePod()
	pod.ManagedFields = nil
	pod.Namespace, pod.Spec.NodeName = fmt.Sprintf("team-%d", n), fmt.Sprintf("node-%d", n)
	switch has {
	case wanted:
		pod.Labels["app"] = fmt.Sprintf("app-%d", n)
	case others:
		delete(pod.Labels, "app")
	case none:
		pod.Labels = nil
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	o, err := event.ParseObject(&event.Resource{Cluster: "bench", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, string(text))
	if err != nil {
		return nil, err
	}
	return &event.Delta{Source: "pods", Op: event.Updated, Old: o, New: o}, nil
}

// run looks up all deltas in the table.
func (b *tableBench) run() (time.Duration, error) {
	ctx := context.Background()
	var buffer [8]filters.Match
	begin := cpu()
	for _, d := range b.deltas {
		matched := 0
		for _, m := range b.table.Match(ctx, d, buffer[:0]) {
			if m.Verdict == filters.Matched {
				matched++
			}
		}
		if matched != 3 {
			return 0, fmt.Errorf("%d of %d routes want a delta, not 3", matched, b.routes)
		}
	}
	return cpu() - begin, nil
}

// each measures the time for evaluating the filters of all routes for a delta.
func (b *tableBench) each(some []*event.Delta) time.Duration {
	begin := cpu()
	for _, d := range some {
		for i := range b.routes {
			b.table.Evaluate(context.Background(), i, d)
		}
	}
	return (cpu() - begin) / time.Duration(len(some))
}

// missing measures the time of the table if a third of the routes reads a label that is absent. It
// leaves out the first delta, for which each of these routes writes a line into the log.
func (b *tableBench) missing(has labels) (time.Duration, error) {
	d, err := podDelta(1, has)
	if err != nil {
		return 0, err
	}
	var buffer [8]filters.Match
	b.table.Match(context.Background(), d, buffer[:0])
	begin := cpu()
	for range deltas {
		b.table.Match(context.Background(), d, buffer[:0])
	}
	return (cpu() - begin) / deltas, nil
}

func medianTime(times []time.Duration) time.Duration {
	return time.Duration(median(times, func(d time.Duration) float64 { return float64(d) }))
}
