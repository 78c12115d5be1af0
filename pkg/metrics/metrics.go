// Package metrics holds every metric of the router in one place, under the names that dashboards and alerts rely on
// (prefix deltarouter_). The stages count through it; pkg/api serves it on /metrics.
package metrics

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The values of the label result of route_deltas_total.
const (
	Matched      = "matched"
	Filtered     = "filtered"
	Delivered    = "delivered"
	Dropped      = "dropped"
	DeadLettered = "dead_lettered"
	Folded       = "folded"
	Suppressed   = "suppressed"
)

// Metrics is safe for concurrent use. Label values of ops are lower case.
type Metrics struct {
	registry *prometheus.Registry
	before   atomic.Pointer[func()]

	Deltas          *prometheus.CounterVec   // source, op
	RouteDeltas     *prometheus.CounterVec   // route, result
	RouteErrors     *prometheus.CounterVec   // route, kind
	Events          *prometheus.CounterVec   // route, sink, result (delivered, retried, rejected)
	QueueDepth      *prometheus.GaugeVec     // route: deltas owed
	RoutePending    *prometheus.GaugeVec     // route: objects for which its condition holds, or that are gone, and for is not over
	RouteActive     *prometheus.GaugeVec     // route: other objects for which its condition holds
	RouteLimitKeys  *prometheus.GaugeVec     // route: keys that its limit knows
	RoutePaused     *prometheus.GaugeVec     // route: 1 if it is paused
	QueueOnDisk     *prometheus.GaugeVec     // route: deltas owed that are not in memory
	QueueDiskBytes  *prometheus.GaugeVec     // route: what it owes takes on disk
	DeadLetters     *prometheus.GaugeVec     // route: how many are kept
	LettersLost     *prometheus.CounterVec   // route, reason (age, count)
	OldestOwed      *prometheus.GaugeVec     // route: seconds
	DeliverySeconds *prometheus.HistogramVec // route: delta seen → acked
	HandlerSeconds  *prometheus.HistogramVec // handler: one call
	SourceSynced    *prometheus.GaugeVec     // source: 0 or 1
	SourceObjects   *prometheus.GaugeVec     // source
	SourceBytes     *prometheus.GaugeVec     // source
	SourceStale     *prometheus.GaugeVec     // source: seconds since the API server was last heard of
	Relists         *prometheus.CounterVec   // source, reason
	ObjectErrors    *prometheus.CounterVec   // source: objects that could not be read and were left out
	IndexErrors     *prometheus.CounterVec   // source, index: evaluations that failed and indexed nothing
	GuestMemory     *prometheus.GaugeVec     // handler: bytes
	GuestFuel       *prometheus.CounterVec   // handler: about one for each instruction
	GuestsEnded     *prometheus.CounterVec   // handler, reason (trap, exit, fuel, stack, answer, memory, calls)
	ConfigReloadOK  prometheus.Gauge
	ConfigHash      *prometheus.GaugeVec // hash
	buildInfo       *prometheus.GaugeVec // version
}

// New returns Metrics with a registry of its own and the Go runtime's metrics.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Deltas = m.counter("deltas_total", "Deltas seen.", "source", "op")
	m.RouteDeltas = m.counter("route_deltas_total", "Deltas per route and what became of them.", "route", "result")
	m.RouteErrors = m.counter("route_errors_total", "Errors per route and kind.", "route", "kind")
	m.Events = m.counter("events_total", "Events per route and sink.", "route", "sink", "result")
	m.QueueDepth = m.gauge("queue_depth", "Deltas that a route owes.", "route")
	m.RoutePending = m.gauge("route_pending", "Objects for which the condition of a route holds, or that are gone, but not yet for as long as it says.", "route")
	m.RouteActive = m.gauge("route_active", "Objects for which the condition of a route holds, but for those that are pending.", "route")
	m.RouteLimitKeys = m.gauge("route_limit_keys", "Keys that the limit of a route knows.", "route")
	m.RoutePaused = m.gauge("route_paused", "1 while a route delivers nothing more, until it is changed or the router starts anew; /readyz says why.", "route")
	m.QueueOnDisk = m.gauge("queue_on_disk", "Deltas that a route owes, of those in queue_depth, that are on disk alone.", "route")
	m.QueueDiskBytes = m.gauge("queue_disk_bytes", "Bytes that what a route owes takes in the state file, at the last cut.", "route")
	m.DeadLetters = m.gauge("dead_letters", "Dead letters that are kept.", "route")
	m.LettersLost = m.counter("dead_letters_lost_total", "Dead letters that were given up for their age or their count.", "route", "reason")
	m.OldestOwed = m.gauge("oldest_owed_seconds", "Age of the oldest delta that a route owes.", "route")
	m.DeliverySeconds = m.histogram("delivery_seconds", "Time from a delta being seen to its ack.", "route")
	m.HandlerSeconds = m.histogram("handler_seconds", "Time of one call of a handler.", "handler")
	m.SourceSynced = m.gauge("source_synced", "1 once the source has its objects.", "source")
	m.SourceObjects = m.gauge("source_objects", "Objects in the cache.", "source")
	m.SourceBytes = m.gauge("source_bytes", "Bytes of the objects in the cache.", "source")
	m.SourceStale = m.gauge("source_stale_seconds", "Time since the API server was last heard of.", "source")
	m.Relists = m.counter("relists_total", "Full lists after the first.", "source", "reason")
	m.ObjectErrors = m.counter("object_errors_total", "Objects that could not be read and were left out.", "source")
	m.IndexErrors = m.counter("index_errors_total", "Index expressions that failed on an object and indexed nothing.", "source", "index")
	m.GuestMemory = m.gauge("guest_memory_bytes", "Memory of a handler's guests.", "handler")
	m.GuestFuel = m.counter("guest_fuel_total", "Fuel that a handler's guests burnt: about one for each instruction.", "handler")
	m.GuestsEnded = m.counter("guests_ended_total", "Guests that were replaced, and why.", "handler", "reason")
	m.ConfigHash = m.gauge("config_hash", "1 for the hash of the running configuration.", "hash")
	m.buildInfo = m.gauge("build_info", "1 for the running version.", "version")
	m.ConfigReloadOK = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "deltarouter", Name: "config_reload_success", Help: "1 if the last load of the configuration succeeded.",
	})
	m.registry.MustRegister(m.ConfigReloadOK)
	return m
}

// SetBuildInfo announces the version.
func (m *Metrics) SetBuildInfo(version string) { m.buildInfo.WithLabelValues(version).Set(1) }

// SetCheckpointAge announces checkpoint_age_seconds: how old the last cut is, asked at each scrape. It is called at most once.
func (m *Metrics) SetCheckpointAge(age func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "deltarouter", Name: "checkpoint_age_seconds", Help: "Age of the last cut that was written.",
	}, func() float64 { return age().Seconds() }))
}

// ForgetRoute removes the series of a route that is not there any more.
func (m *Metrics) ForgetRoute(name string) {
	route := prometheus.Labels{"route": name}
	for _, v := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{
		m.RouteDeltas, m.RouteErrors, m.Events, m.QueueDepth, m.RoutePending, m.RouteActive, m.RouteLimitKeys, m.RoutePaused, m.QueueOnDisk, m.QueueDiskBytes,
		m.OldestOwed, m.DeliverySeconds,
	} {
		v.DeletePartialMatch(route)
	}
}

// ForgetSource removes the series of a source that is not there any more.
func (m *Metrics) ForgetSource(name string) {
	source := prometheus.Labels{"source": name}
	for _, v := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{
		m.Deltas, m.SourceSynced, m.SourceObjects, m.SourceBytes, m.SourceStale, m.Relists, m.ObjectErrors, m.IndexErrors,
	} {
		v.DeletePartialMatch(source)
	}
}

// ForgetHandler removes the series of a handler that is not there any more.
func (m *Metrics) ForgetHandler(name string) {
	handler := prometheus.Labels{"handler": name}
	m.HandlerSeconds.DeletePartialMatch(handler)
	m.GuestMemory.DeletePartialMatch(handler)
	m.GuestFuel.DeletePartialMatch(handler)
	m.GuestsEnded.DeletePartialMatch(handler)
}

// BeforeScrape has a function called before each scrape, for what is too expensive to count as it happens. The last one given counts.
func (m *Metrics) BeforeScrape(count func()) { m.before.Store(&count) }

// Handler serves the metrics in the Prometheus text formats.
func (m *Metrics) Handler() http.Handler {
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if count := m.before.Load(); count != nil {
			(*count)()
		}
		scrape.ServeHTTP(w, r)
	})
}

// Registry is where a test reads values and where app registers what is computed at scrape time.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Since observes the seconds since start.
func Since(o prometheus.Observer, start time.Time) { o.Observe(time.Since(start).Seconds()) }

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "deltarouter", Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "deltarouter", Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, label string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "deltarouter", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(100e-6, 4, 12),
	}, []string{label})
	m.registry.MustRegister(v)
	return v
}
