package informer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// recordedMetrics is the Metrics of a program that is not the router.
type recordedMetrics map[string]float64

func (m recordedMetrics) Count(metric string, labels ...string) informer.Counter {
	return m.Gauge(metric, labels...)
}

func (m recordedMetrics) Gauge(metric string, labels ...string) informer.Gauge {
	name := fmt.Sprint(metric, labels)
	m[name] += 0
	return recordedSeries{m, name}
}

func (m recordedMetrics) ForgetSource(string) {}

type recordedSeries struct {
	of   recordedMetrics
	name string
}

func (s recordedSeries) Add(n float64) { s.of[s.name] += n }

func (s recordedSeries) Set(n float64) { s.of[s.name] = n }

// TestOwnMetrics shows that a program gets the metrics of its sources, and that the router has each
// of them under the same name and with as many labels.
func TestOwnMetrics(t *testing.T) {
	recorded := recordedMetrics{}
	f := informer.New(informer.Config{Metrics: recorded, Downstream: newSink()})
	spec := informer.Spec{}
	spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
	fed, err := f.Watch(spec, newMemory(), informer.Source{Name: "pods"}).Injector("Pod")
	must.Succeed(t, err)
	must.Succeed(t, fed.List(t.Context(), []string{podText("a", "u", "1", "", "")}, "1"))
	must.Succeed(t, fed.Put(t.Context(), podText("a", "u", "2", "", "")))
	if added, updated := recorded["source_deltas_total[pods added]"], recorded["source_deltas_total[pods updated]"]; added != 1 || updated != 1 {
		t.Errorf("%v deltas added and %v updated, want 1 and 1: %v", added, updated, recorded)
	}
	known := metrics.Table()
	for series := range recorded {
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "]"), "[")
		if !slices.ContainsFunc(known, func(m metrics.Metric) bool {
			return m.Name == "deltarouter_"+name && len(m.Labels) == len(strings.Fields(labels))
		}) {
			t.Errorf("the router has no metric %s with the labels %q", name, labels)
		}
	}
}
