package inspect

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The limits of the API's load on the router.
const (
	queriesAtOnce = 2
	queriesOfUser = 1
	scanAtOnce    = 10_000          // evaluations of a filter for one page
	scanTime      = 2 * time.Second // time for one page
	maxPage       = 16 << 20        // bytes of objects
)

// Query implements api.Cache.
func (s *Cache) Query(ctx context.Context, q api.Query) (answer api.Answer, err error) {
	// First, because a client without rights must not take the place of another one.
	if err := s.objects.Load().mayRead(ctx, "list", q); err != nil {
		return answer, err
	}
	leave, err := s.busy.enter(ctx)
	if err != nil {
		return answer, err
	}
	defer leave()
	inv := s.objects.Load()
	p, err := inv.pager(ctx, q)
	if err != nil {
		return answer, err
	}
	status, _ := s.factory.Status(q.Source)
	p.Synced, p.Reason = status.Synced, inv.reason(ctx, q.Source, status.Reason)
	found, version := s.collect(inv, q, nil)
	p.ResourceVersion = version
	page, more := first(found, q.After, p.most())
	return p.fill(ctx, page, more)
}

// pager checks a query, and begins its page.
func (inv *Inventory) pager(ctx context.Context, q api.Query) (*pager, error) {
	source, filter, err := inv.understand(ctx, "list", q)
	if err != nil {
		return nil, err
	}
	selector, err := selectorOf(q.Labels)
	if err != nil {
		return nil, err
	}
	return &pager{
		Answer: api.Answer{Source: q.Source, Resource: source.Resource, Kept: inv.keptFields(q.Source)},
		query:  q, selector: selector, filter: filter, cache: redactedCache{inv.catalog}, deadline: time.Now().Add(scanTime),
	}, nil
}

// understand checks the rights on the objects of a query, before anything of them is used. It
// validates the query and compiles its filter, if any. verb is list or watch.
func (inv *Inventory) understand(ctx context.Context, verb string, q api.Query) (*config.Source, *cel.Program, error) {
	if err := inv.mayRead(ctx, verb, q); err != nil {
		return nil, nil, err
	}
	source := inv.config.Sources[q.Source]
	if source == nil {
		known := slices.Sorted(maps.Keys(inv.config.Sources))
		return nil, nil, unknown("there is no source %q%s", q.Source, config.Suggest(q.Source, known))
	}
	if known := inv.indexes(q.Source); q.Index != "" && !slices.Contains(known, q.Index) {
		if source.Indexes[q.Index] != nil {
			return nil, nil, unknown("index %q of source %q cannot be queried: it may contain data of Secrets", q.Index, q.Source)
		}
		return nil, nil, unknown("source %q has no index %q%s", q.Source, q.Index, config.Suggest(q.Index, known))
	}
	if q.Filter == "" {
		return source, nil, inv.checkKept(q, nil)
	}
	env, err := inv.envFor(ctx, q.Source)
	if err != nil {
		return nil, nil, err
	}
	filter, err := env.CompileWithin(cel.NewEffort(cel.EffortOfQuery), q.Filter, cel.Query, q.Source)
	if err != nil {
		return nil, nil, &api.QueryError{Message: "filter: " + err.Error()}
	}
	if err := access.Check(ctx, inv.rightsToAll("list", filter.Sources())...); err != nil {
		return nil, nil, err
	}
	for _, w := range filter.CostWarnings() {
		if w.Excessive {
			return nil, nil, &api.QueryError{Message: "filter: " + w.Message}
		}
	}
	return source, filter, inv.checkKept(q, filter)
}

// selectorOf parses a label selector. It is nil if all objects match.
func selectorOf(text string) (labels.Selector, error) {
	if text == "" {
		return nil, nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, &api.QueryError{Message: fmt.Sprintf("labels: %q is no label selector: write it like app=web,tier!=db,env in (a, b),!canary", text)}
	}
	return selector, nil
}

func unknown(format string, args ...any) error {
	return &api.QueryError{Message: fmt.Sprintf(format, args...), Unknown: true}
}

// collect returns all objects that may be on this page or a later one, unordered, and the
// resourceVersion of their state. It calls held, unless it is nil, with the number of each store of
// the source while the watch of the store is held.
func (s *Cache) collect(inv *Inventory, q api.Query, held func(store int)) (found []*event.Object, version string) {
	for i, spec := range inv.watches[q.Source] {
		if q.Namespace != "" && spec.Namespace != "" && q.Namespace != spec.Namespace {
			continue
		}
		fed, _ := s.factory.Cut(spec, func() {
			if found = inv.catalog.Collect(found, q.Source, i, q.Index, q.Value); held != nil {
				held(i)
			}
		})
		if older, err := resourceversion.CompareResourceVersion(fed, version); version == "" || err == nil && older < 0 {
			version = fed
		}
	}
	return slices.DeleteFunc(found, func(o *event.Object) bool {
		return !named(q, o.Key())
	}), version
}

// named reports whether an object has the namespace and the name of a query.
func named(q api.Query, key event.Key) bool {
	return (q.Namespace == "" || key.Namespace == q.Namespace) && (q.Name == "" || key.Name == q.Name)
}

// first returns the first n objects behind a key in order, and whether more follow.
func first(found []*event.Object, after event.Key, n int) (page []*event.Object, more bool) {
	last := make(backwards, 0, min(len(found), n)+1)
	for _, o := range found {
		if after != (event.Key{}) && byKey(o.Key(), after) <= 0 {
			continue
		}
		if len(last) < n {
			heap.Push(&last, o)
			continue
		}
		if more = true; byKey(o.Key(), last[0].Key()) < 0 {
			last[0] = o
			heap.Fix(&last, 0)
		}
	}
	slices.SortFunc(last, func(a, b *event.Object) int { return byKey(a.Key(), b.Key()) })
	return last, more
}

func byKey(a, b event.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// backwards is a heap whose first object is the last in order.
type backwards []*event.Object

func (h backwards) Len() int           { return len(h) }
func (h backwards) Less(i, j int) bool { return byKey(h[i].Key(), h[j].Key()) > 0 }
func (h backwards) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *backwards) Push(o any) { *h = append(*h, o.(*event.Object)) }

// Pop implements heap.Interface.
func (h *backwards) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	*h = (*h)[:last]
	return o
}

// pager makes one page.
type pager struct {
	api.Answer

	query    api.Query
	selector labels.Selector // nil: all match
	filter   *cel.Program    // nil: all match
	cache    cel.Cache
	deadline time.Time
	bytes    int
}

// most returns the number of objects that are evaluated for the page.
func (p *pager) most() int {
	if p.filter != nil || p.selector != nil {
		return max(p.query.Limit, scanAtOnce)
	}
	return p.query.Limit
}

// fill adds the matching objects to the page. It evaluates at least one object, so that a client
// that follows the pages reaches the end.
func (p *pager) fill(ctx context.Context, objects []*event.Object, more bool) (api.Answer, error) {
	for i, o := range objects {
		if i > 0 && (len(p.Items) == p.query.Limit || p.bytes > maxPage || (p.filter != nil || p.selector != nil) && time.Now().After(p.deadline)) {
			p.Continue = api.Token(objects[i-1].Key())
			return p.Answer, nil
		}
		if err := ctx.Err(); err != nil {
			return p.Answer, err
		}
		matches, err := p.matches(ctx, o)
		if err != nil {
			return p.Answer, &api.QueryError{Message: fmt.Sprintf("filter: on %s: %v", o, err)}
		}
		if matches {
			shown := Redacted(o, shownAs)
			p.Items = append(p.Items, shown.JSON())
			p.bytes += len(shown.JSON())
		}
	}
	if more {
		p.Continue = api.Token(objects[len(objects)-1].Key())
	}
	return p.Answer, nil
}

func (p *pager) matches(ctx context.Context, o *event.Object) (bool, error) {
	if p.selector != nil && !p.selector.Matches(labels.Set(o.Labels())) {
		return false, nil
	}
	if p.filter == nil {
		return true, nil
	}
	d := &event.Delta{Source: p.Source, Op: event.Sync, New: Redacted(o, EvaluatedAs)}
	ok, err := p.filter.Match(ctx, cel.Input{Delta: d, Cache: p.cache})
	if errors.Is(err, cel.ErrAbsent) {
		p.Absent++
		return false, nil
	}
	return ok, err
}
