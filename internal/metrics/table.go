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
	m.SetReplication(Replication{})
	m.SetState(State{Limit: 1, Room: func() (int64, bool) { return 0, true }})
	m.SetLeads(false)
	m.SetRefused(nil, nil)
	m.SetSecrets(func() int { return 0 })
	m.SetHistory(func() int64 { return 0 })
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

// SetHistory registers the size of the history. It is called at most once.
func (m *Metrics) SetHistory(size func() int64) {
	m.computed("history_bytes", "Size of the history in the state folder.", func() float64 { return float64(size()) })
}

// SetSecrets registers the number of secrets without a value. It is called at most once.
func (m *Metrics) SetSecrets(missing func() int) {
	m.computed("config_missing_secrets", "Secrets of the configuration that have no value now: a missing file or variable. router status names them.", func() float64 {
		return float64(missing())
	})
}

// SetLeads registers the metric of the role in a fleet. It is called at most once.
func (m *Metrics) SetLeads(leads bool) {
	m.computed("fleet_leader", "1: this member leads its fleet. 0: it is a standby.", func() float64 {
		if leads {
			return 1
		}
		return 0
	})
}

// Replication has the figures of the replication of the state in a fleet. Its functions are called
// at each scrape.
type Replication struct {
	Behind func() (frames uint64, time time.Duration, known bool)
	// Published counts bytes, and the others what their names say.
	Published, Snapshots, Installed, Late func() int64
}

// SetReplication registers the metrics of the replication. It is called at most once.
func (m *Metrics) SetReplication(r Replication) {
	m.computed("fleet_frames_behind", "On a standby: frames of the leader's state file that its own does not have. On the leader: frames that are not in NATS.", func() float64 {
		frames, _, _ := r.Behind()
		return float64(frames)
	})
	m.computed("fleet_behind_seconds", "On a standby: time since it had the whole state of the leader; NaN until then. On the leader: age of the oldest frame that is not in NATS.", func() float64 {
		_, behind, known := r.Behind()
		if !known {
			return math.NaN()
		}
		return behind.Seconds()
	})
	m.counted("fleet_published_bytes_total", "Bytes of frames that this member has published to NATS, without snapshots.", r.Published)
	m.counted("fleet_snapshots_total", "Snapshots of the state file that this member has published to NATS.", r.Snapshots)
	m.counted("fleet_snapshots_installed_total", "Snapshots that replaced the state file of this member.", r.Installed)
	m.counted("fleet_waits_ended_total", "With fleet.wait: transactions that were not in NATS after 1s, or while earlier ones were not, and continued without.", r.Late)
}

// Count returns the series of a counter or a gauge by its name without the prefix, and by the
// values of its labels. It is how packages count that do not import this one. A series of another
// name, or with another number of labels, is not counted.
func (m *Metrics) Count(name string, labels ...string) interface{ Add(n float64) } {
	if v, ok := m.counters[name]; ok {
		if series, err := v.GetMetricWithLabelValues(labels...); err == nil {
			return series
		}
	}
	return m.Gauge(name, labels...)
}

// Gauge is Count for gauges only.
func (m *Metrics) Gauge(name string, labels ...string) interface {
	Add(n float64)
	Set(n float64)
} {
	if v, ok := m.gauges[name]; ok {
		if series, err := v.GetMetricWithLabelValues(labels...); err == nil {
			return series
		}
	}
	return uncounted{}
}

// uncounted is a series that nothing reads.
type uncounted struct{}

// Add does nothing.
func (uncounted) Add(float64) {}

// Set does nothing.
func (uncounted) Set(float64) {}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.describe(name, "counter", help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.counters[name] = v
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.describe(name, "gauge", help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.gauges[name] = v
	m.registry.MustRegister(v)
	return v
}

// SetRefused registers the counter of refused messages and requests of a fleet, with the values of
// its label and the function that counts each. It is called at most once.
func (m *Metrics) SetRefused(kinds []string, count func(kind string) uint64) {
	const name, help = "fleet_refused_total", "What this process has refused in NATS because no process of the fleet has made it, by kind."
	m.describe(name, "counter", help, []string{"kind"})
	for _, kind := range kinds {
		opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: prometheus.Labels{"kind": kind}}
		m.registry.MustRegister(prometheus.NewCounterFunc(opts, func() float64 { return float64(count(kind)) }))
	}
}

// computed registers a gauge without labels whose value is computed at each scrape.
func (m *Metrics) computed(name, help string, value func() float64) {
	m.describe(name, "gauge", help, nil)
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
}

// counted registers a counter without labels whose value is read at each scrape.
func (m *Metrics) counted(name, help string, value func() int64) {
	m.describe(name, "counter", help, nil)
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, func() float64 { return float64(value()) }))
}

func (m *Metrics) describe(name, kind, help string, labels []string) {
	m.table = append(m.table, Metric{Name: namespace + "_" + name, Type: kind, Labels: labels, Help: help})
}
