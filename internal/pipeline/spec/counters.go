package spec

import (
	"slices"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline/deliver"
)

type gauge interface{ Set(float64) }

// The interfaces of metrics are those of package deliver.
type (
	counter  = deliver.Counter
	observer = deliver.Observer
)

// Counters are the metrics of one route, looked up once. Of the deltas, matched = delivered +
// dropped + deadLettered + coalesced + suppressed + pending.
type Counters struct {
	Matched, Filtered, Coalesced counter
	Delivered, Dropped           counter
	DeadLettered, Suppressed     counter
	Depth, Oldest                gauge
	Waiting, Active, Keys        gauge // of rules; nil: the route has no such rule
	OnDisk, Bytes, Disk, Paused  gauge
	Deliveries                   *metrics.Deliveries
	Handler                      observer        // seconds of a call of the handler
	Events                       []eventCounters // by sink
	Errors                       func(kind string) counter
}

// OmitGauges makes the gauges have no effect.
func (c *Counters) OmitGauges() {
	c.Depth, c.Oldest, c.OnDisk, c.Bytes, c.Disk, c.Paused = noGauge{}, noGauge{}, noGauge{}, noGauge{}, noGauge{}, noGauge{}
	for i := range c.Events {
		if c.Events[i].Unavailable != nil {
			c.Events[i].Unavailable = noGauge{}
		}
	}
}

type noGauge struct{}

func (noGauge) Set(float64) {}

// eventCounters count the results of a sink for the events of a route.
type eventCounters struct {
	deliver.EventCounters

	Unavailable gauge // nil: it is a route
}

func newCounters(m *metrics.Metrics, r *Route) Counters {
	deltas := func(result string) counter { return m.RouteDeltas.WithLabelValues(r.Name, result) }
	c := Counters{
		Matched: deltas(metrics.Matched), Filtered: deltas(metrics.Filtered), Coalesced: deltas(metrics.Coalesced),
		Delivered: deltas(metrics.Delivered), Dropped: deltas(metrics.Dropped), DeadLettered: deltas(metrics.DeadLettered),
		Suppressed: deltas(metrics.Suppressed),
		Depth:      m.QueueDepth.WithLabelValues(r.Name), Oldest: m.OldestPending.WithLabelValues(r.Name),
		OnDisk:     m.QueueOnDisk.WithLabelValues(r.Name),
		Bytes:      m.QueueBytes.WithLabelValues(r.Name),
		Disk:       m.QueueDiskBytes.WithLabelValues(r.Name),
		Paused:     m.RoutePaused.WithLabelValues(r.Name),
		Deliveries: m.Deliveries(r.Name),
		Errors:     func(kind string) counter { return m.RouteErrors.WithLabelValues(r.Name, kind) },
	}
	c.Errors("overflow") // increase() of the alert about lost deltas needs the 0
	if r.When.Filter != nil || r.Hold > 0 {
		c.Waiting = m.RoutePending.WithLabelValues(r.Name)
	}
	if r.When.Filter != nil {
		c.Active = m.RouteActive.WithLabelValues(r.Name)
	}
	if r.Limit.On() {
		c.Keys = m.RouteLimitKeys.WithLabelValues(r.Name)
	}
	if r.Handler != nil {
		c.Handler = m.HandlerSeconds.WithLabelValues(r.HandlerName)
	}
	for _, s := range r.Sinks {
		result := func(name string) counter { return m.Events.WithLabelValues(r.Name, s.Name, name) }
		events := eventCounters{EventCounters: deliver.EventCounters{
			Delivered: result("delivered"), Retried: result("retried"), Rejected: result("rejected"),
		}}
		if s.Route == "" {
			events.Unavailable = m.SinkUnavailable.WithLabelValues(r.Name, s.Name)
		}
		c.Events = append(c.Events, events)
	}
	return c
}

// Delivery returns the counters of delivery.
func (c *Counters) Delivery() deliver.Counters {
	d := deliver.Counters{Handler: c.Handler, Errors: c.Errors}
	for _, e := range c.Events {
		d.Events = append(d.Events, e.EventCounters)
	}
	return d
}

// ForgetSeries removes the series of the rules and sinks that a route no longer has.
func ForgetSeries(m *metrics.Metrics, from, to *Config) {
	for _, series := range []struct {
		from, to gauge
		of       interface {
			DeleteLabelValues(values ...string) bool
		}
	}{
		{from.Count.Waiting, to.Count.Waiting, m.RoutePending},
		{from.Count.Active, to.Count.Active, m.RouteActive},
		{from.Count.Keys, to.Count.Keys, m.RouteLimitKeys},
	} {
		if series.from != nil && series.to == nil {
			series.of.DeleteLabelValues(to.Name)
		}
	}
	for _, s := range from.Sinks {
		if !slices.ContainsFunc(to.Sinks, func(o NamedSink) bool { return o.Name == s.Name }) {
			m.SinkUnavailable.DeleteLabelValues(to.Name, s.Name)
		}
	}
}
