package inspect

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// savedAtOnce is the number of objects that are read in one transaction.
const savedAtOnce = 500

// Saved answers the API's queries from the state file of a standby, which has no cache: a page is
// read from the file, and its objects are indexed for the query. It implements [api.Cache]. It is
// safe for concurrent use.
type Saved struct {
	db        *checkpoint.DB
	inventory func(context.Context) (*Inventory, error)
	busy      *places // bounds concurrent queries
	ending    context.Context
	log       *slog.Logger
}

// NewSaved makes a Saved. The stores of the inventory are empty. Queries end with ctx: a takeover
// does not wait for them.
func NewSaved(ctx context.Context, db *checkpoint.DB, inventory func(context.Context) (*Inventory, error), log *slog.Logger) *Saved {
	return &Saved{db, inventory, newPlaces(queriesAtOnce, queriesOfUser), ctx, log}
}

// begin returns the context of a query and the inventory.
func (s *Saved) begin(ctx context.Context) (_ context.Context, inv *Inventory, end func(), err error) {
	if err := s.ending.Err(); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ending, cancel)
	end = func() {
		stop()
		cancel()
	}
	if inv, err = s.inventory(ctx); err != nil {
		end()
		return nil, nil, nil, err
	}
	return ctx, inv, end, nil
}

// Sources implements api.Cache.
func (s *Saved) Sources(ctx context.Context) (all []api.SourceInfo, err error) {
	ctx, inv, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	leave, err := s.busy.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	for _, name := range slices.Sorted(maps.Keys(inv.config.Sources)) {
		info := inv.source(name)
		info.Hidden = !inv.mayList(ctx, name)
		for _, spec := range inv.watches[name] {
			if info.Hidden {
				break
			}
			n, err := checkpoint.CountObjects(s.db, spec.ID())
			if err != nil {
				return nil, err
			}
			info.Objects += n
		}
		if info.Synced, info.Reason, _, err = s.state(inv, name); err != nil {
			return nil, err
		}
		info.Reason = inv.reason(ctx, name, info.Reason)
		all = append(all, info)
	}
	return all, ctx.Err()
}

// state reports whether the file has the state of all watches of a source, and the oldest of their
// resourceVersions.
func (s *Saved) state(inv *Inventory, source string) (synced bool, reason, version string, err error) {
	synced = true
	for _, spec := range inv.watches[source] {
		w, err := s.db.ReadWatch(spec.ID(), nil)
		if err != nil {
			return false, "", "", err
		}
		if w == nil || w.Applied == "" || w.Relisting {
			synced, reason = false, "the leader has not saved all of its objects"
			continue
		}
		if older, err := resourceversion.CompareResourceVersion(w.Applied, version); version == "" || err == nil && older < 0 {
			version = w.Applied
		}
	}
	return synced, reason, version, nil
}

// Query implements api.Cache. Each transaction reads a later state, in which an object that exists
// throughout appears once.
func (s *Saved) Query(ctx context.Context, q api.Query) (answer api.Answer, err error) {
	ctx, inv, end, err := s.begin(ctx)
	if err != nil {
		return answer, err
	}
	defer end()
	if err := inv.mayRead(ctx, "list", q); err != nil {
		return answer, err
	}
	leave, err := s.busy.enter(ctx)
	if err != nil {
		return answer, err
	}
	defer leave()
	p, err := inv.pager(ctx, q)
	if err != nil {
		return answer, err
	}
	if p.filter != nil && len(p.filter.Sources()) > 0 {
		return answer, &api.QueryError{Message: "filter: a standby has no indexes for look-ups: ask the leader"}
	}
	if p.Synced, p.Reason, p.ResourceVersion, err = s.state(inv, q.Source); err != nil {
		return answer, err
	}
	p.Reason = inv.reason(ctx, q.Source, p.Reason)
	r := &savedReader{Saved: s, inv: inv, p: p, until: time.Now().Add(scanTime / 2)}
	if err := r.read(ctx); err != nil {
		return answer, err
	}
	page, more := first(r.found, q.After, p.most())
	if answer, err = p.fill(ctx, page, more); err == nil && answer.Continue == "" && r.more {
		answer.Continue = api.Token(r.last)
	}
	return answer, err
}

// savedReader reads the candidates of a page.
type savedReader struct {
	*Saved

	inv   *Inventory
	p     *pager
	until time.Time // the other half of the time is for the filter

	found []*event.Object
	last  event.Key // the last object that was read
	more  bool      // objects behind it were not read
}

// read reads objects until the page has enough, or its time is over.
func (r *savedReader) read(ctx context.Context) error {
	q := r.p.query
	watches := slices.Clone(r.inv.watches[q.Source])
	slices.SortFunc(watches, func(a, b informer.Spec) int { return strings.Compare(a.Namespace, b.Namespace) })
	for _, spec := range watches {
		if q.Namespace != "" && spec.Namespace != "" && q.Namespace != spec.Namespace {
			continue
		}
		if r.more {
			return nil
		}
		if err := r.watch(ctx, spec); err != nil {
			return err
		}
	}
	return nil
}

// watch reads objects of a watch, in their order.
func (r *savedReader) watch(ctx context.Context, spec informer.Spec) error {
	q, next := r.p.query, ""
	if q.After != (event.Key{}) {
		next = checkpoint.After(q.After)
	}
	if of := checkpoint.After(event.Key{Namespace: q.Namespace}); q.Namespace != "" && next < of {
		next = of
	}
	for begun := false; !begun || next != ""; begun = true {
		if err := ctx.Err(); err != nil {
			return err
		}
		if begun && (len(r.found) >= r.p.most() || time.Now().After(r.until)) {
			r.more, r.last = true, checkpoint.Key(next)
			return nil
		}
		if q.Namespace != "" && q.Name != "" {
			return r.one(spec, event.Key{Namespace: q.Namespace, Name: q.Name})
		}
		var some []checkpoint.Object
		var err error
		if next, err = r.db.ReadObjects(spec.ID(), next, savedAtOnce, 1, func(o checkpoint.Object) { some = append(some, o) }); err != nil {
			return err
		}
		if err := r.take(spec, some); err != nil {
			return err
		}
		if q.Namespace != "" && checkpoint.Key(next).Namespace > q.Namespace {
			return nil
		}
	}
	return nil
}

// one reads a named object.
func (r *savedReader) one(spec informer.Spec, key event.Key) error {
	o, err := r.db.ReadObject(spec.ID(), key)
	if err != nil || o == nil {
		return err
	}
	return r.take(spec, []checkpoint.Object{*o})
}

// take adds those objects that the query may select.
func (r *savedReader) take(spec informer.Spec, some []checkpoint.Object) error {
	q := r.p.query
	resource := &event.Resource{GroupVersionResource: spec.Resource, Cluster: r.inv.config.Cluster.Name}
	store := index.NewStore(slices.Collect(maps.Values(r.inv.specs[q.Source]))...)
	for _, saved := range some {
		o, err := event.ParseObject(resource, saved.JSON)
		if err != nil {
			return err
		}
		if named(q, o.Key()) {
			store.Put(o)
		}
	}
	catalog := index.NewCatalog()
	catalog.Add(q.Source, []*index.Store{store}, r.inv.specs[q.Source])
	r.found = catalog.Collect(r.found, q.Source, 0, q.Index, q.Value)
	return nil
}

// SavedLetters returns the dead letters of the state file, for the API of a standby. It changes
// none of them.
func SavedLetters(s *Saved) api.DeadLetters { return savedLetters{saved: s} }

type savedLetters struct {
	api.Changer // nil: a standby refuses these requests before

	saved *Saved
}

// with calls f with the dead letters that there are now.
func (l savedLetters) with(ctx context.Context, f func(ctx context.Context, d *DeadLetters) error) error {
	ctx, inv, end, err := l.saved.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	leave, err := l.saved.busy.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	d := NewDeadLetters(&Current{}, nil, l.saved.log)
	d.objects.inventory.Store(inv)
	if d.store, err = l.saved.db.Letters(checkpoint.LettersConfig{}); err != nil {
		return err
	}
	return f(ctx, d)
}

// Letters implements api.DeadLetters.
func (l savedLetters) Letters(ctx context.Context, route string, after uint64, limit int) (letters []api.Letter, err error) {
	err = l.with(ctx, func(ctx context.Context, d *DeadLetters) (err error) {
		letters, err = d.Letters(ctx, route, after, limit)
		return err
	})
	return letters, err
}

// Letter implements api.DeadLetters.
func (l savedLetters) Letter(ctx context.Context, id uint64) (letter *api.Letter, err error) {
	err = l.with(ctx, func(ctx context.Context, d *DeadLetters) (err error) {
		letter, err = d.Letter(ctx, id)
		return err
	})
	return letter, err
}
