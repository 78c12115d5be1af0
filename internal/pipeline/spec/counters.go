package spec

import (
	"slices"

	"github.com/deltarouter/deltarouter/internal/metrics"
)

// Gauge is a metric of a state.
type Gauge interface{ Set(value float64) }

// Counter is a metric of a number of events.
type Counter interface {
	Inc()
	Add(n float64)
}

// Observer is a metric of a distribution.
type Observer interface{ Observe(value float64) }

// Counters are the metrics of one route, looked up once. Of the deltas, matched = delivered +
// dropped + deadLettered + coalesced + suppressed + pending.
type Counters struct {
	Matched, Filtered, Coalesced Counter
	Delivered, Dropped           Counter
	DeadLettered, Suppressed     Counter
	Depth, Oldest                Gauge
	Waiting, Active, Keys        Gauge // of rules; nil: the route has no such rule
	OnDisk, Bytes, Disk, Paused  Gauge
	Deliveries                   *metrics.Deliveries
	Handler                      Observer        // seconds of a call; nil: there is no handler
	Events                       []EventCounters // by target
	Errors                       func(kind string) Counter
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

// EventCounters count the results of a target for the events of a route.
type EventCounters struct {
	Delivered, Retried, Rejected Counter
	Unavailable                  Gauge // nil: the target is a route
}

func newCounters(m *metrics.Metrics, r *Settings) Counters {
	deltas := func(result string) Counter { return m.RouteDeltas.WithLabelValues(r.Name, result) }
	delivered := metrics.Delivered
	if r.Shadow {
		delivered = metrics.Shadowed
	}
	c := Counters{
		Matched: deltas(metrics.Matched), Filtered: deltas(metrics.Filtered), Coalesced: deltas(metrics.Coalesced),
		Delivered: deltas(delivered), Dropped: deltas(metrics.Dropped), DeadLettered: deltas(metrics.DeadLettered),
		Suppressed: deltas(metrics.Suppressed),
		Depth:      m.QueueDepth.WithLabelValues(r.Name), Oldest: m.OldestPending.WithLabelValues(r.Name),
		OnDisk:     m.QueueOnDisk.WithLabelValues(r.Name),
		Bytes:      m.QueueBytes.WithLabelValues(r.Name),
		Disk:       m.QueueDiskBytes.WithLabelValues(r.Name),
		Paused:     m.RoutePaused.WithLabelValues(r.Name),
		Deliveries: m.Deliveries(r.Name),
		Errors:     func(kind string) Counter { return m.RouteErrors.WithLabelValues(r.Name, kind) },
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
		result := func(name string) Counter { return m.Events.WithLabelValues(r.Name, s.Name, name) }
		events := EventCounters{Delivered: result(delivered), Retried: result("retried"), Rejected: result("rejected")}
		if s.Route == "" {
			events.Unavailable = m.SinkUnavailable.WithLabelValues(r.Name, s.Name)
		}
		c.Events = append(c.Events, events)
	}
	return c
}

// ForgetSeries removes the series of the rules and sinks that a route no longer has.
func ForgetSeries(m *metrics.Metrics, from, to *Settings) {
	for _, series := range []struct {
		from, to Gauge
		of       interface {
			DeleteLabelValues(values ...string) bool
		}
	}{
		{from.count.Waiting, to.count.Waiting, m.RoutePending},
		{from.count.Active, to.count.Active, m.RouteActive},
		{from.count.Keys, to.count.Keys, m.RouteLimitKeys},
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
