package pipeline

import "github.com/deltarouter/deltarouter/pkg/event"

// Active returns the objects for which the condition of a route holds, or whose deletes are held,
// in the order of source, namespace and name: at most limit after the last one of the previous
// page. more: others follow. ok is false if there is no such route, or if it has neither a
// condition nor delete holds.
func (p *Pipeline) Active(name string, after Holding, limit int) (page []Holding, more, ok bool) {
	r := p.now.Load().byName(name)
	if r == nil || !r.Settings().HasCondition() && r.Settings().Hold == 0 {
		return nil, false, false
	}
	page = r.Holdings(after, limit+1)
	if more = len(page) > limit; more {
		page = page[:limit]
	}
	return page, more, true
}

// Holds returns the holding of one object, see [Pipeline.Active]. ok is false if there is none.
func (p *Pipeline) Holds(name, source string, key event.Key) (h Holding, ok bool) {
	r := p.now.Load().byName(name)
	if r == nil {
		return h, false
	}
	return r.HoldingOf(source, key)
}
