package pipeline

import (
	"context"
	"time"
)

// gaugeInterval is how often the age of the oldest pending delta is measured.
const gaugeInterval = time.Second

// measureGauges updates the gauges that no event of a route changes, once in an interval.
func (p *Pipeline) measureGauges(ctx context.Context) {
	ticker := time.NewTicker(gaugeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := p.cfg.Clock.Now()
			p.countRoutes()
			for _, r := range p.now.Load().routes {
				age := 0.0
				if s := r.Status(); !s.Oldest.IsZero() {
					age = max(0, now.Sub(s.Oldest).Seconds())
				}
				r.Settings().Count().Oldest.Set(age)
			}
		}
	}
}

// countRoutes updates the metrics of all routes: the deltas that the table has excluded since the
// last call count as filtered.
func (p *Pipeline) countRoutes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Load().count()
}

// count is called under the pipeline's lock.
func (now *routing) count() {
	for i, r := range now.routes {
		if n := now.table.Skipped(i) + r.Settings().Table().Skipped(0); n > 0 {
			r.Settings().Count().Filtered.Add(float64(n))
		}
		r.Show()
	}
}
