package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/test/bench/report"
)

const indexedPods = 5_000

// indexTexts are the four indexes. typedIndexes are the same in Go.
func indexTexts() []string {
	return []string{
		`object.spec.nodeName`,
		`object.metadata.namespace + "/" + object.metadata.labels["app"]`,
		`object.metadata.annotations["users"].split(",")`,
		`object.status.phase`,
	}
}

func typedIndexes() cache.Indexers {
	of := func(keys func(*corev1.Pod) []string) cache.IndexFunc {
		return func(item any) ([]string, error) {
			pod, ok := item.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("a %T is no pod", item)
			}
			return keys(pod), nil
		}
	}
	return cache.Indexers{
		"byNode":  of(func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }),
		"byNsApp": of(func(p *corev1.Pod) []string { return []string{p.Namespace + "/" + p.Labels["app"]} }),
		"byUser":  of(func(p *corev1.Pod) []string { return strings.Split(p.Annotations["users"], ",") }),
		"byPhase": of(func(p *corev1.Pod) []string { return []string{string(p.Status.Phase)} }),
	}
}

// indexed has the same pods, in two states each, in both stores.
type indexed struct {
	typed   [2][]*corev1.Pod
	objects [2][]*event.Object
	store   *index.Store
	indexer cache.Indexer
	catalog *index.Catalog
}

// compareIndexes measures the CPU of an update of an indexed object, with four CEL indexes and with
// four IndexFuncs on decoded typed objects, and the allocations of a look-up.
func compareIndexes(out *report.Report, rounds int) error {
	b, err := newIndexed()
	if err != nil {
		return err
	}
	var ours, theirs []time.Duration
	for round := range 2*rounds + 1 {
		state := round % 2
		begin := cpu()
		for _, o := range b.objects[state] {
			b.store.Put(o)
		}
		middle := cpu()
		for _, pod := range b.typed[state] {
			if err := b.indexer.Update(pod); err != nil {
				return err
			}
		}
		if round > 0 { // the first round fills the stores
			ours, theirs = append(ours, middle-begin), append(theirs, cpu()-middle)
		}
	}
	cel, typed := medianTime(ours)/indexedPods, medianTime(theirs)/indexedPods
	err = out.Add(report.Table{
		Part: "indexes", Title: "Indexes in CEL",
		Text:   "CPU of an update with four indexes, in CEL on the text of an object, and by hand-written functions on a decoded typed object.",
		Labels: []string{"indexes"},
		Columns: []report.Column{
			{Name: "CPU µs/update", Format: "%.2f"},
			{Name: "CPU", Format: "%.2f", Ratio: true, Chart: &report.Chart{Name: "indexes", Title: "CPU of an update with four indexes, as a multiple of that of hand-written functions"}},
		},
		Rows: []report.Row{
			{Labels: []string{"by hand, typed"}, Figures: []float64{micros(typed), 1}},
			{Labels: []string{report.Own}, Figures: []float64{micros(cel), float64(cel) / float64(typed)}},
		},
	})
	if err != nil {
		return err
	}
	return b.lookups()
}

func newIndexed() (*indexed, error) {
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "bench", Sources: map[string][]string{"pods": nil}})
	if err != nil {
		return nil, err
	}
	m, byName := metrics.New(), map[string]index.Spec{}
	var specs []index.Spec
	for i, text := range indexTexts() {
		program, err := env.Compile(text, cel.Index, "pods")
		if err != nil {
			return nil, err
		}
		name := []string{"byNode", "byNsApp", "byUser", "byPhase"}[i]
		byName[name] = index.NewSpec([]string{text}, []*cel.Program{program}, m.IndexErrors.WithLabelValues("pods", name), slog.New(slog.DiscardHandler), name)
		specs = append(specs, byName[name])
	}
	b := &indexed{store: index.NewStore(specs...), catalog: index.NewCatalog(), indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, typedIndexes())}
	b.catalog.Add("pods", []*index.Store{b.store}, byName)
	for i := range indexedPods {
		for state := range 2 {
			pod := examplePod()
			pod.ManagedFields = nil
			pod.Name, pod.Spec.NodeName = fmt.Sprintf("pod-%d", i), fmt.Sprintf("node-%d", (i+state)%nodes)
			pod.Labels["app"] = fmt.Sprintf("app-%d", (i*7+state)%nodes)
			text, err := json.Marshal(pod)
			if err != nil {
				return nil, err
			}
			o, err := event.ParseObject(&event.Resource{Cluster: "bench"}, string(text))
			if err != nil {
				return nil, err
			}
			b.typed[state], b.objects[state] = append(b.typed[state], pod), append(b.objects[state], o)
		}
	}
	return b, nil
}

// lookups measures the allocations of a look-up: the slice that it returns.
func (b *indexed) lookups() error {
	const n = 10_000
	var before, after runtime.MemStats
	found := 0
	runtime.ReadMemStats(&before)
	begin := cpu()
	for i := range n {
		found += len(b.catalog.Lookup("pods", "byNode", nodeNames[i%len(nodeNames)]))
	}
	took := cpu() - begin
	runtime.ReadMemStats(&after)
	if found != n*indexedPods/nodes {
		return fmt.Errorf("%d objects found, want %d", found, n*indexedPods/nodes)
	}
	fmt.Printf("a look-up of %d objects: %v, %.2f allocations, of which 1 is the result\n", indexedPods/nodes, took/n, float64(after.Mallocs-before.Mallocs)/n)
	return nil
}

var nodeNames = []string{"node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7"}
