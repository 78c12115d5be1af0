package metrics

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace is the prefix of every name, without the underscore.
const namespace = "deltarouter"

// Metric describes one metric. docs/METRICS.md and internal/monitoring are made from these.
type Metric struct {
	Name   string // with the prefix
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// Table returns every metric of the router, by name. Those of the Go runtime and of the process are
// not in it.
func Table() []Metric {
	m := New()
	m.SetState(State{Limit: 1, Room: func() (int64, bool) { return 0, true }})
	slices.SortFunc(m.table, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return m.table
}

// State has the figures of the state folder. Its functions are called at each scrape.
type State struct {
	Age   func() time.Duration // since the last cut
	Size  func() int64         // of the state file, in bytes
	Limit int64                // of the size, in bytes
	Room  func() (bytes int64, known bool)
}

// SetState registers the metrics of the state folder. It is called at most once.
func (m *Metrics) SetState(s State) {
	m.computed("checkpoint_age_seconds", "Age of the last cut that was written.", func() float64 { return s.Age().Seconds() })
	m.computed("state_file_bytes", "Size of the state file. A part of it may be free: the file shrinks only at a start.", func() float64 { return float64(s.Size()) })
	m.computed("state_file_limit_bytes", "Maximum size of the state file, state.maxSize.", func() float64 { return float64(s.Limit) })
	if _, known := s.Room(); known {
		m.computed("state_disk_free_bytes", "Bytes that the router may still write to the disk of the state folder.", func() float64 {
			if bytes, known := s.Room(); known {
				return float64(bytes)
			}
			return math.NaN()
		})
	}
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.describe(name, "counter", help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.describe(name, "gauge", help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// computed registers a gauge without labels whose value is computed at each scrape.
func (m *Metrics) computed(name, help string, value func() float64) {
	m.describe(name, "gauge", help, nil)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
}

func (m *Metrics) describe(name, kind, help string, labels []string) {
	m.table = append(m.table, Metric{Name: namespace + "_" + name, Type: kind, Labels: labels, Help: help})
}
