package pipeline

import (
	"github.com/deltarouter/deltarouter/pkg/metrics"
)

type counter interface {
	Inc()
	Add(float64)
}

type gauge interface{ Set(float64) }

type observer interface{ Observe(float64) }

// counters are the metrics of one route, looked up once. Of the deltas, matched = delivered + dropped + deadLettered + folded +
// suppressed + owed.
type counters struct {
	matched, filtered, folded counter
	delivered, dropped        counter
	deadLettered, suppressed  counter
	depth, oldest             gauge
	waiting, active           gauge // conditions
	onDisk, disk              gauge
	delivery, handler         observer
	events                    []eventCounters // by sink
	errors                    func(kind string) counter
}

// eventCounters count what a sink said of the events of a route.
type eventCounters struct{ delivered, retried, rejected counter }

func newCounters(m *metrics.Metrics, r Route) counters {
	deltas := func(result string) counter { return m.RouteDeltas.WithLabelValues(r.Name, result) }
	c := counters{
		matched: deltas(metrics.Matched), filtered: deltas(metrics.Filtered), folded: deltas(metrics.Folded),
		delivered: deltas(metrics.Delivered), dropped: deltas(metrics.Dropped), deadLettered: deltas(metrics.DeadLettered),
		suppressed: deltas(metrics.Suppressed),
		depth:      m.QueueDepth.WithLabelValues(r.Name), oldest: m.OldestOwed.WithLabelValues(r.Name),
		onDisk:   m.QueueOnDisk.WithLabelValues(r.Name),
		disk:     m.QueueDiskBytes.WithLabelValues(r.Name),
		delivery: m.DeliverySeconds.WithLabelValues(r.Name),
		errors:   func(kind string) counter { return m.RouteErrors.WithLabelValues(r.Name, kind) },
	}
	if r.When.Filter != nil {
		c.waiting, c.active = m.RoutePending.WithLabelValues(r.Name), m.RouteActive.WithLabelValues(r.Name)
	}
	if r.Handler != nil {
		c.handler = m.HandlerSeconds.WithLabelValues(r.HandlerName)
	}
	for _, s := range r.Sinks {
		result := func(name string) counter { return m.Events.WithLabelValues(r.Name, s.Name, name) }
		c.events = append(c.events, eventCounters{result("delivered"), result("retried"), result("rejected")})
	}
	return c
}
