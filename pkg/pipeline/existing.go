package pipeline

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
)

// Existing is [Change.Existing] for the routes that the pipeline was made with. It is called before Start, after Restore.
func (p *Pipeline) Existing(ctx context.Context, d *event.Delta) (commit func()) {
	a := &admission{delta: d}
	for _, r := range p.now.Load().routes {
		a.existing(ctx, r)
	}
	return a.result()
}

// existing adds what a route says about a delta that is about an object that was there before.
func (a *admission) existing(ctx context.Context, r *route) {
	if r.isLevel() {
		a.existingLevel(ctx, r)
		return
	}
	if !r.cfg.Existing || r.cfg.Known {
		return
	}
	for _, m := range r.table.Match(ctx, a.delta, nil) {
		if m.Verdict == filters.Filtered {
			r.count.filtered.Inc()
			continue
		}
		a.verdicts = append(a.verdicts, r.verdict(ctx, a.delta, m))
	}
}

// result is what Admit returns.
func (a *admission) result() (commit func()) {
	if len(a.verdicts) == 0 {
		return nil
	}
	return a.commit
}
