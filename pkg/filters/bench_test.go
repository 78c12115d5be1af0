package filters_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/test/must"
)

// benchPod returns a pod with labels, on a node and in a namespace. No labels: the object has none
// at all.
func benchPod(b *testing.B, labels map[string]any, n int) *event.Delta {
	b.Helper()
	data, err := os.ReadFile("../../internal/rawjson/testdata/pod.json")
	must.Succeed(b, err)
	var pod map[string]any
	must.Succeed(b, json.Unmarshal(data, &pod))
	metadata := pod["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	delete(metadata, "labels")
	if labels != nil {
		metadata["labels"] = labels
	}
	metadata["namespace"] = fmt.Sprintf("team-%d", n)
	pod["spec"].(map[string]any)["nodeName"] = fmt.Sprintf("node-%d", n)
	data, err = json.Marshal(pod)
	must.Succeed(b, err)
	o, err := event.ParseObject(&event.Resource{Cluster: "c"}, string(data))
	must.Succeed(b, err)
	return &event.Delta{Source: "pods", Op: event.Updated, Old: o, New: o}
}

// benchTable returns a table of routes, a third of which wants the label of an application.
func benchTable(b *testing.B, routes int) *filters.Table {
	b.Helper()
	env := tableEnv(b)
	entries := make([]filters.Entry, routes)
	for i := range entries {
		n := i / 3
		text := []string{
			fmt.Sprintf(`object.metadata.labels["app"] == "app-%d" && object.status.phase == "Running"`, n),
			fmt.Sprintf(`object.status.containerStatuses.exists(c, c.restartCount > 1) && object.spec.nodeName == "node-%d"`, n),
			fmt.Sprintf(`op == "updated" && object.metadata.namespace in ["team-%d", "team-%d-stage"]`, n, n),
		}[i%3]
		program, err := env.Compile(text, cel.Filter, "pods")
		must.Succeed(b, err)
		entries[i] = filters.Entry{Sources: []string{"pods"}, Ops: event.SourceOps(), Filter: filters.NewCEL(filters.CELConfig{Program: program, Absent: func(uint64) {}})}
	}
	return filters.NewTable(entries)
}

// BenchmarkRoutes finds the routes of a delta, two or three, among ten and among thousands, also of
// objects that lack the label of a third of the routes.
func BenchmarkRoutes(b *testing.B) {
	for _, routes := range []int{10, 10_000} {
		table := benchTable(b, routes)
		const deltas = 1000
		var labelled, unlabelled, bare []*event.Delta
		for i := range deltas {
			n := i % (routes / 3)
			labelled = append(labelled, benchPod(b, map[string]any{"app": fmt.Sprintf("app-%d", n), "team": "a"}, n))
			unlabelled = append(unlabelled, benchPod(b, map[string]any{"team": "a"}, n))
			bare = append(bare, benchPod(b, nil, n))
		}
		for _, run := range []struct {
			name   string
			deltas []*event.Delta
			want   int
		}{{"labelled", labelled, 3}, {"no label", unlabelled, 2}, {"no labels", bare, 2}} {
			b.Run(fmt.Sprintf("%d/%s", routes, run.name), func(b *testing.B) {
				matches := table.Match(b.Context(), run.deltas[0], nil) // the first one visits all routes
				i := 0
				for b.Loop() {
					if matches = table.Match(b.Context(), run.deltas[i%deltas], matches[:0]); len(matches) != run.want {
						b.Fatalf("%d routes, want %d", len(matches), run.want)
					}
					i++
				}
			})
		}
	}
}

// BenchmarkEnters measures the second evaluation of a matched update, by turns with the first one.
// ratio is its time divided by that of Match.
func BenchmarkEnters(b *testing.B) {
	for name, text := range map[string]string{
		"equalities": `object.metadata.labels["app"] == "app-1" && object.status.phase == "Running"`,
		"exists":     `object.status.containerStatuses.exists(c, c.restartCount >= 0)`,
	} {
		b.Run(name, func(b *testing.B) {
			program, err := tableEnv(b).Compile(text, cel.Filter, "pods")
			must.Succeed(b, err)
			table := filters.NewTable([]filters.Entry{{Sources: []string{"pods"}, Ops: event.SourceOps(), Filter: filters.NewCEL(filters.CELConfig{Program: program})}})
			d := benchPod(b, map[string]any{"app": "app-1"}, 1)
			var matches []filters.Match
			var spent [2]time.Duration
			for b.Loop() {
				began := time.Now()
				if matches = table.Match(b.Context(), d, matches[:0]); len(matches) != 1 {
					b.Fatal(matches)
				}
				matched := time.Now()
				var budget filters.Budget
				if table.Enters(b.Context(), 0, d, &budget) {
					b.Fatal("it enters")
				}
				spent[0], spent[1] = spent[0]+matched.Sub(began), spent[1]+time.Since(matched)
			}
			b.ReportMetric(float64(spent[1].Nanoseconds())/float64(b.N), "ns/second")
			b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
		})
	}
}
