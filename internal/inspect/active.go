package inspect

import (
	"context"
	"slices"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Active lists the objects for which the condition of a route holds, and deleted objects in a
// delete hold.
func Active(ctx context.Context, p *pipeline.Pipeline, inv *Inventory, q api.ActiveQuery) (items []api.Active, more bool, err error) {
	if err := inv.checkSeen(ctx, "list", q.Route); err != nil {
		return nil, false, err
	}
	cfg := inv.config
	after := pipeline.Holding{Source: q.After.Source, Key: event.Key{Namespace: q.After.Namespace, Name: q.After.Name}}
	page, more, ok := p.Active(q.Route, after, q.Limit)
	if !ok {
		var known []string
		for _, route := range cfg.Routes {
			known = append(known, route.Name)
		}
		if slices.Contains(known, q.Route) {
			return nil, false, &api.QueryError{Message: "route " + q.Route + " has no condition: it has neither when nor for"}
		}
		return nil, false, unknown("there is no route %q%s", q.Route, config.Suggest(q.Route, known))
	}
	for i := range page {
		h := &page[i]
		a := api.Active{
			Source: h.Source, Namespace: h.Key.Namespace, Name: h.Key.Name, UID: h.UID, Since: h.Since.UTC(), State: h.State,
			Reported: h.State == "entered", Repeats: h.Repeat,
		}
		if h.State == "pending" || h.State == "gone" {
			a.Due = h.Due.UTC()
		} else if !h.Due.IsZero() {
			a.Remind = h.Due.UTC()
		}
		items = append(items, a)
	}
	return items, more, nil
}
