package metrics

import (
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Each histogram has classic buckets and native ones: a scrape gets those that it asks for. Native
// buckets are 20 % wide, at most 40 of a histogram are kept, and wider ones replace them when there
// are more. They cost up to 6 KB and 0.1 µs for each observation: BenchmarkObserve.
const (
	nativeFactor     = 1.2
	nativeBuckets    = 40
	nativeMinimumAge = time.Hour // before a reset because of too many buckets
)

// exemplarInterval is the least time between two exemplars of a histogram: one costs ten times as
// much as an observation, and a scrape gets a few only.
const exemplarInterval = time.Second

// exemplarLabel names the id of an event in an exemplar, and traceLabel the id of its trace.
// Prometheus bounds an exemplar to 128 characters, and its client panics beyond that.
const (
	exemplarLabel = "event_id"
	traceLabel    = "trace_id"
	maxExemplarID = prometheus.ExemplarMaxRunes - len(exemplarLabel) - len(traceLabel) - traceDigits
	traceDigits   = 32
)

func (m *Metrics) histogram(name, help string, label string) *prometheus.HistogramVec {
	m.describe(name, "histogram", help, []string{label})
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(100e-6, 4, 12),
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
		NativeHistogramMinResetDuration: nativeMinimumAge,
	}, []string{label})
	m.registry.MustRegister(v)
	return v
}

// Deliveries is the histogram of the deliveries of a route.
type Deliveries struct {
	seconds prometheus.Observer
	next    atomic.Int64 // the time of the next exemplar, in nanoseconds
}

// Deliveries returns the histogram of a route.
func (m *Metrics) Deliveries(route string) *Deliveries {
	return &Deliveries{seconds: m.DeliverySeconds.WithLabelValues(route)}
}

// Observe counts a delivery that ended now. Once a second it attaches the id of its event as an
// exemplar, unless the id is empty or cannot be one, and the id of its trace, unless that is empty.
func (d *Deliveries) Observe(now time.Time, took time.Duration, id, trace string) {
	at, next := now.UnixNano(), d.next.Load()
	exemplars, ok := d.seconds.(prometheus.ExemplarObserver)
	if ok && id != "" && len(id) <= maxExemplarID && utf8.ValidString(id) && at >= next && d.next.CompareAndSwap(next, at+int64(exemplarInterval)) {
		labels := prometheus.Labels{exemplarLabel: id}
		if len(trace) == traceDigits {
			labels[traceLabel] = trace
		}
		exemplars.ObserveWithExemplar(took.Seconds(), labels)
		return
	}
	d.seconds.Observe(took.Seconds())
}
