// Package metrics contains every metric of the router, under the names that dashboards and alerts
// rely on (prefix deltarouter_). internal/api serves them on /metrics.
package metrics

import (
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// The values of the label result of route_deltas_total.
const (
	Matched      = "matched"
	Filtered     = "filtered"
	Delivered    = "delivered"
	Dropped      = "dropped"
	DeadLettered = "dead_lettered"
	Coalesced    = "coalesced"
	Suppressed   = "suppressed"
	Shadowed     = "shadowed" // delivered nowhere: the route has shadow
)

// The values of the label result of trace_spans_total.
const (
	SpansExported = "exported"
	SpansDropped  = "dropped"  // because the receiver is slow or unavailable
	SpansRejected = "rejected" // by the receiver
)

// Metrics is safe for concurrent use. Label values of ops are lower case.
type Metrics struct {
	registry *prometheus.Registry
	// by their names, see Count
	counters map[string]*prometheus.CounterVec
	gauges   map[string]*prometheus.GaugeVec
	before   atomic.Pointer[func()]
	table    []Metric

	Deltas      *prometheus.CounterVec // source, op
	RouteDeltas *prometheus.CounterVec // route, result
	RouteErrors *prometheus.CounterVec // route, kind
	Events      *prometheus.CounterVec // route, sink, result (delivered, shadowed, retried, rejected)
	QueueDepth  *prometheus.GaugeVec   // route: pending deltas
	// route: objects for which its condition holds and for is not over, and held deletes
	RoutePending   *prometheus.GaugeVec
	RouteActive    *prometheus.GaugeVec // route: other objects for which its condition holds
	RouteLimitKeys *prometheus.GaugeVec // route: keys of its limit
	RoutePaused    *prometheus.GaugeVec // route: 1 if it is paused
	Fleet          Fleet
	// route, sink: 1 while the circuit breaker of the sink is open
	SinkUnavailable *prometheus.GaugeVec
	// route: changes for which its watches were not evaluated yet
	WatchesChanges *prometheus.GaugeVec
	// route: objects that its watches named and that were not processed yet
	WatchesObjects  *prometheus.GaugeVec
	QueueOnDisk     *prometheus.GaugeVec     // route: pending deltas that are only on disk
	QueueBytes      *prometheus.GaugeVec     // route: bytes of its pending deltas in memory
	QueueDiskBytes  *prometheus.GaugeVec     // route: bytes of its backlog on disk
	DeadLetters     *prometheus.GaugeVec     // route: their number
	LettersLost     *prometheus.CounterVec   // route, reason (age, count, share)
	OldestPending   *prometheus.GaugeVec     // route: seconds
	DeliverySeconds *prometheus.HistogramVec // route: from the delta being seen to its ack
	HandlerSeconds  *prometheus.HistogramVec // handler: one call
	SourceSynced    *prometheus.GaugeVec     // source: 0 or 1
	SourceObjects   *prometheus.GaugeVec     // source
	SourceBytes     *prometheus.GaugeVec     // source
	// source: seconds since the last contact with the API server
	SourceStale *prometheus.GaugeVec
	// source: seconds since the last proof that no change is missing
	SourceUnproven *prometheus.GaugeVec
	// source: changes that wait until it is known whether their object was deleted
	SourceHeld   *prometheus.GaugeVec
	Relists      *prometheus.CounterVec // source, reason
	ObjectErrors *prometheus.CounterVec // source: objects that could not be read
	// source, index: evaluations that failed and indexed no value
	IndexErrors *prometheus.CounterVec
	GuestMemory *prometheus.GaugeVec   // handler: bytes
	GuestFuel   *prometheus.CounterVec // handler: about one for each instruction
	// handler, reason (trap, exit, fuel, timeout, stack, answer, memory, calls, canceled)
	GuestsEnded    *prometheus.CounterVec
	TraceSpans     *prometheus.CounterVec // result: see its constants
	HistoryRecords *prometheus.CounterVec // kind (change, decision, held)
	HistoryLost    *prometheus.CounterVec // reason (slow, refused)
	ConfigReloadOK prometheus.Gauge
	LeftOut

	ConfigHash *prometheus.GaugeVec // hash
	buildInfo  *prometheus.GaugeVec // version
}

// LeftOut has the gauges of the parts of a configuration that do not run.
type LeftOut struct {
	// include: the number of its files, or of the objects of a namespace, with mistakes
	IncludeRejected *prometheus.GaugeVec
	RouteDisabled   *prometheus.GaugeVec // route
}

// Fleet has the gauges of a fleet beside those of [Replication].
type Fleet struct {
	Work     *prometheus.GaugeVec // on the leader: deltas for workers
	Problems *prometheus.GaugeVec // on the leader: of NATS
	Stranded *prometheus.GaugeVec // on the leader, by route
	Owned    *prometheus.GaugeVec // on a worker: partitions, by route
}

// New returns Metrics with a registry of its own and the metrics of the Go runtime.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{}, gauges: map[string]*prometheus.GaugeVec{}}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Deltas = m.counter("source_deltas_total", "Deltas seen.", "source", "op")
	m.RouteDeltas = m.counter("route_deltas_total", "Deltas per route and result. filtered: those of its sources and ops that its filter or scope excludes, evaluated or not.", "route", "result")
	m.RouteErrors = m.counter("route_errors_total", "Errors per route and kind.", "route", "kind")
	m.Events = m.counter("route_events_total", "Events per route and target. A target that is a route has route: and the id of that route as its sink.", "route", "sink", "result")
	m.QueueDepth = m.gauge("route_queue_deltas", "Deltas pending at a route.", "route")
	m.RoutePending = m.gauge("route_pending_objects", "Objects for which the condition of a route holds but for is not over, and held deletes.", "route")
	m.RouteActive = m.gauge("route_active_objects", "Objects for which the condition of a route holds, except pending ones.", "route")
	m.RouteLimitKeys = m.gauge("route_limit_keys", "Keys of the limit of a route.", "route")
	m.RoutePaused = m.gauge("route_paused", "1 while a route is paused; router status shows the reason, and the end if router pause has set one.", "route")
	m.Fleet.Work = m.gauge("fleet_work_deltas", "On the leader of a fleet: deltas for workers that are not handled yet. Absent while NATS does not answer.")
	m.Fleet.Problems = m.gauge("fleet_nats_problems", "On the leader of a fleet: faults of the NATS servers and streams that it has found; router status shows them.")
	m.Fleet.Stranded = m.gauge("fleet_stranded_deltas", "On the leader of a fleet: deltas that wait for workers of a route that has none in the configuration.", "route")
	m.Fleet.Owned = m.gauge("fleet_partitions", "On a worker: partitions of a route that it owns.", "route")
	m.SinkUnavailable = m.gauge("route_sink_unavailable", "1 while the circuit breaker of a sink of the route is open.", "route", "sink")
	m.WatchesChanges = m.gauge("route_watches_backlog_changes", "Changes for which the watches of a route were not evaluated yet.", "route")
	m.WatchesObjects = m.gauge("route_watches_backlog_objects", "Objects that the watches of a route named and that were not processed yet.", "route")
	m.QueueOnDisk = m.gauge("route_queue_disk_deltas", "Those of route_queue_deltas that are only on disk.", "route")
	m.QueueBytes = m.gauge("route_queue_memory_bytes", "Bytes of the pending deltas of a route in memory: their objects and events.", "route")
	m.QueueDiskBytes = m.gauge("route_queue_disk_bytes", "Bytes of the backlog of a route in the state file, at the last cut.", "route")
	m.DeadLetters = m.gauge("dead_letters", "Dead letters in the state folder.", "route")
	m.LettersLost = m.counter("dead_letters_evicted_total", "Dead letters deleted because of their age, their number, or their share of the state folder.", "route", "reason")
	m.OldestPending = m.gauge("route_oldest_pending_seconds", "Age of the oldest delta pending at a route.", "route")
	m.DeliverySeconds = m.histogram("route_delivery_duration_seconds", "Time from a delta being seen to its ack.", "route")
	m.HandlerSeconds = m.histogram("handler_call_duration_seconds", "Time of one call of a handler.", "handler")
	m.SourceSynced = m.gauge("source_synced", "1 once the source has listed its objects.", "source")
	m.SourceObjects = m.gauge("source_objects", "Objects in the cache.", "source")
	m.SourceBytes = m.gauge("source_bytes", "Bytes of the objects in the cache, of which those at rest are compressed.", "source")
	m.SourceStale = m.gauge("source_last_contact_seconds", "Time since the last contact with the API server.", "source")
	m.SourceUnproven = m.gauge("source_unproven_seconds",
		"Time since the last proof that the source misses no change: an event, a bookmark, a list, or an answer that has nothing newer.", "source")
	m.SourceHeld = m.gauge("source_held_changes",
		"Changes that wait until the API server says whether an object that left the selector was deleted.", "source")
	m.Relists = m.counter("source_relists_total", "Full lists after the first.", "source", "reason")
	m.ObjectErrors = m.counter("source_object_errors_total", "Objects that could not be read; they were skipped or delivered without their content.", "source")
	m.IndexErrors = m.counter("source_index_errors_total", "Index expressions that failed on an object and indexed no value.", "source", "index")
	m.GuestMemory = m.gauge("guest_memory_bytes", "Memory of a handler's guests.", "handler")
	m.GuestFuel = m.counter("guest_fuel_total", "Fuel used by a handler's guests: about one for each instruction.", "handler")
	m.GuestsEnded = m.counter("guests_ended_total", "Guests that were replaced, and why.", "handler", "reason")
	m.TraceSpans = m.counter("trace_spans_total", "Spans by result: exported; dropped because the receiver is slow or unavailable; rejected by the receiver.", "result")
	m.HistoryRecords = m.counter("history_records_total", "Records written to the history: changes of sources, decisions of routes, and changes that a rule of a route holds back.", "kind")
	m.HistoryLost = m.counter("history_lost_total", "Records that are missing in the history, because the disk was too slow or refused them. Deltas are delivered regardless.", "reason")
	m.IncludeRejected = m.gauge("include_rejected_files", "Files of an include that have mistakes. Their routes are disabled, or continue as they were.", "include")
	m.RouteDisabled = m.gauge("route_disabled", "1 for a route that is disabled, because it does not fit the schemas of the cluster.", "route")
	m.ConfigHash = m.gauge("config_hash", "1 for the hash of the running configuration.", "hash")
	m.buildInfo = m.gauge("build_info", "1 for the running version.", "version")
	m.ConfigReloadOK = m.gauge("config_last_reload_successful", "1 if the last load of the configuration succeeded.").WithLabelValues()
	return m
}

// SetBuildInfo sets the version.
func (m *Metrics) SetBuildInfo(version string) { m.buildInfo.WithLabelValues(version).Set(1) }

// ForgetRoute removes the series of a removed route.
func (m *Metrics) ForgetRoute(name string) {
	route := prometheus.Labels{"route": name}
	for _, v := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{
		m.RouteDeltas, m.RouteErrors, m.Events, m.QueueDepth, m.RoutePending, m.RouteActive, m.RouteLimitKeys, m.RoutePaused, m.QueueOnDisk, m.QueueBytes, m.QueueDiskBytes,
		m.SinkUnavailable, m.WatchesChanges, m.WatchesObjects,
		m.OldestPending, m.DeliverySeconds,
	} {
		v.DeletePartialMatch(route)
	}
}

// ForgetLetters removes the series of the dead letters of a renamed route.
func (m *Metrics) ForgetLetters(route string) {
	m.DeadLetters.DeleteLabelValues(route)
	m.LettersLost.DeletePartialMatch(prometheus.Labels{"route": route})
}

// ForgetSource removes the series of a removed source.
func (m *Metrics) ForgetSource(name string) {
	source := prometheus.Labels{"source": name}
	for _, v := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{
		m.Deltas, m.SourceSynced, m.SourceObjects, m.SourceBytes, m.SourceStale, m.SourceUnproven, m.SourceHeld, m.Relists, m.ObjectErrors, m.IndexErrors,
	} {
		v.DeletePartialMatch(source)
	}
}

// ForgetHandler removes the series of a removed handler.
func (m *Metrics) ForgetHandler(name string) {
	handler := prometheus.Labels{"handler": name}
	m.HandlerSeconds.DeletePartialMatch(handler)
	m.GuestMemory.DeletePartialMatch(handler)
	m.GuestFuel.DeletePartialMatch(handler)
	m.GuestsEnded.DeletePartialMatch(handler)
}

// BeforeScrape sets a function that is called before each scrape, for metrics that are too
// expensive to update with each change. It replaces the previous function.
func (m *Metrics) BeforeScrape(count func()) { m.before.Store(&count) }

// maxScrapes is the number of concurrent scrapes; others get 503, because each scrape takes time
// and memory for all series.
const maxScrapes = 4

// Handler serves the metrics in the formats of Prometheus. Exemplars are in OpenMetrics and
// protobuf, native histograms in protobuf only.
func (m *Metrics) Handler() http.Handler {
	counted := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		if count := m.before.Load(); count != nil {
			(*count)()
		}
		return m.registry.Gather()
	})
	return promhttp.HandlerFor(counted, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true})
}

// CountDeadLettered returns the number of deltas of a route that became dead letters in this
// process, stored or only logged.
func (m *Metrics) CountDeadLettered(route string) float64 {
	return valueOf(m.RouteDeltas.WithLabelValues(route, DeadLettered))
}

// valueOf returns the value of a counter or a gauge.
func valueOf(m prometheus.Metric) float64 {
	var value dto.Metric
	if err := m.Write(&value); err != nil {
		return 0
	}
	return value.GetCounter().GetValue() + value.GetGauge().GetValue() // it has one of the two
}

// Guests returns the fuel that a handler's guests have used, and their memory in bytes.
func (m *Metrics) Guests(handler string) (fuel, memory float64) {
	return valueOf(m.GuestFuel.WithLabelValues(handler)), valueOf(m.GuestMemory.WithLabelValues(handler))
}

// Registry returns the registry, for tests that read values and for metrics that are computed at
// scrape time.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }
