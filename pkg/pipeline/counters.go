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
	waiting, active, keys     gauge // of rules; nil: it has no such rule
	onDisk, disk, paused      gauge
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
		paused:   m.RoutePaused.WithLabelValues(r.Name),
		delivery: m.DeliverySeconds.WithLabelValues(r.Name),
		errors:   func(kind string) counter { return m.RouteErrors.WithLabelValues(r.Name, kind) },
	}
	if r.When.Filter != nil || r.Gone > 0 {
		c.waiting = m.RoutePending.WithLabelValues(r.Name)
	}
	if r.When.Filter != nil {
		c.active = m.RouteActive.WithLabelValues(r.Name)
	}
	if r.Limit.on() {
		c.keys = m.RouteLimitKeys.WithLabelValues(r.Name)
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

// show announces what nobody counts as it happens.
func (r *route) show() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != "" {
		r.count.paused.Set(1)
	} else {
		r.count.paused.Set(0)
	}
	if r.cfg.Gone > 0 && r.absent != nil {
		r.count.waiting.Set(float64(r.absent.Len()))
	}
	if r.cfg.Limit.on() && r.limit != nil {
		r.count.keys.Set(float64(r.limit.Len()))
	}
}

// forgetRules removes the series of the rules that a route had, and its successor of the same name has not.
func (p *Pipeline) forgetRules(from, to *route) {
	for _, series := range []struct {
		from, to gauge
		of       interface {
			DeleteLabelValues(values ...string) bool
		}
	}{
		{from.count.waiting, to.count.waiting, p.cfg.Metrics.RoutePending},
		{from.count.active, to.count.active, p.cfg.Metrics.RouteActive},
		{from.count.keys, to.count.keys, p.cfg.Metrics.RouteLimitKeys},
	} {
		if series.from != nil && series.to == nil {
			series.of.DeleteLabelValues(to.cfg.Name)
		}
	}
}
