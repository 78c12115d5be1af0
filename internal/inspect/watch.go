package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The limits of streams of objects. They bound the memory: apart from the cache, a stream keeps the
// replaced and deleted objects of the changes in its backlog.
const (
	maxStreams    = 4
	streamsOfUser = 2
	streamBacklog = 4096     // changes that wait for the reader
	streamBytes   = 16 << 20 // bytes of the objects that they replaced
)

// The ends of a stream by the router.
var (
	errSlowReader = fmt.Errorf("the stream was cut off because more than %d changes, or %d MiB, waited for its reader: "+
		"select fewer objects, or start again", streamBacklog, streamBytes>>20)
	errReloaded = errors.New("the stream ended because the configuration was reloaded: start again")
)

// objectChange is a change of a store.
type objectChange struct {
	before, now *event.Object // nil: no object
}

// objectStream is one stream of the objects that a query selects, and of their changes.
type objectStream struct {
	pager

	inventory *Inventory
	busy      *places // of the Cache
	changes   chan objectChange
	waiting   atomic.Int64  // bytes of the objects before the changes
	slow      chan struct{} // closed by cut
	cut       sync.Once     // by the first change without room in changes
	show      func(api.WatchEvent) error
	// shown has the objects that the reader knows. nil: all objects match, so it knows all
	shown map[event.Key]struct{}
}

// Watch implements api.Watch. It lists each store and begins to observe it while the cut lock holds
// the watch, so no change is lost and none is repeated. The watch never waits for the stream: a
// stream with a full backlog ends.
func (s *Cache) Watch(ctx context.Context, q api.Query, show func(api.WatchEvent) error) error {
	// First, because a client without rights must not take the place of another one.
	if err := s.objects.Load().mayRead(ctx, "watch", q); err != nil {
		return err
	}
	leave, err := s.streams.try(ctx, "streams of objects")
	if err != nil {
		return err
	}
	defer leave()
	stream, err := s.newStream(ctx, q, show)
	if err != nil {
		return err
	}
	inv := stream.inventory
	var stops []func()
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	found, version := s.collect(inv, q, func(store int) {
		stops = append(stops, inv.stores[q.Source][store].Observe(stream.observe))
	})
	stream.ResourceVersion = version
	return stream.run(ctx, found)
}

// newStream makes a stream that does not observe yet.
func (s *Cache) newStream(ctx context.Context, q api.Query, show func(api.WatchEvent) error) (*objectStream, error) {
	inv := s.objects.Load()
	source, filter, err := inv.understand(ctx, "watch", q)
	if err != nil {
		return nil, err
	}
	selector, err := selectorOf(q.Labels)
	if err != nil {
		return nil, err
	}
	stream := &objectStream{
		pager:     pager{query: q, selector: selector, filter: filter, cache: redactedCache{inv.catalog}},
		inventory: inv, busy: s.busy, changes: make(chan objectChange, streamBacklog), slow: make(chan struct{}), show: show,
	}
	if filter != nil || selector != nil || q.Index != "" {
		stream.shown = make(map[event.Key]struct{})
	}
	status, _ := s.factory.Status(q.Source)
	stream.Source, stream.Resource, stream.Synced, stream.Reason = q.Source, source.Resource, status.Synced, inv.reason(ctx, q.Source, status.Reason)
	return stream, nil
}

// observe takes a change of a store. It never blocks: the first change without room ends the
// stream.
func (s *objectStream) observe(before, now *event.Object) {
	if !named(s.query, cmp.Or(now, before).Key()) || before != nil && now != nil && before.Raw() == now.Raw() {
		return
	}
	if s.waiting.Add(sizeOf(before)) <= streamBytes {
		select {
		case s.changes <- objectChange{before, now}:
			return
		default:
		}
	}
	s.cut.Do(func() { close(s.slow) })
}

func sizeOf(o *event.Object) int64 {
	if o == nil {
		return 0
	}
	return int64(o.Size())
}

// run writes the objects that match now, and then their changes until ctx is done.
func (s *objectStream) run(ctx context.Context, found []*event.Object) error {
	slices.SortFunc(found, func(a, b *event.Object) int { return byKey(a.Key(), b.Key()) })
	for i, o := range found {
		if err := s.interrupted(ctx); err != nil {
			return err
		}
		found[i] = nil // it may be replaced in the cache while the others are written
		if err := s.write(ctx, objectChange{now: o}); err != nil {
			return err
		}
	}
	listed := api.WatchEvent{Type: api.WatchListed, ResourceVersion: s.ResourceVersion, Synced: s.Synced, Reason: s.Reason, Absent: s.Absent}
	if err := s.show(listed); err != nil {
		return err
	}
	for {
		if err := s.interrupted(ctx); err != nil {
			return err
		}
		select {
		case c := <-s.changes:
			s.waiting.Add(-sizeOf(c.before))
			if err := s.write(ctx, c); err != nil {
				return err
			}
		case <-s.slow:
		case <-s.inventory.replaced:
		case <-ctx.Done():
		}
	}
}

// interrupted returns the reason for the end of the stream, if it ends now.
func (s *objectStream) interrupted(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.slow:
		return errSlowReader
	case <-s.inventory.replaced:
		return errReloaded
	default:
		return nil
	}
}

// write writes the event of a change, if the change concerns the query. An object that no longer
// matches is deleted for the reader, with its last matching state.
func (s *objectStream) write(ctx context.Context, c objectChange) error {
	was, is := c.before != nil, c.now != nil
	if s.shown != nil {
		var err error
		if was, is, err = s.compare(ctx, c); err != nil {
			return err
		}
	}
	switch {
	case is && was:
		return s.event(api.WatchModified, c.now)
	case is:
		return s.event(api.WatchAdded, c.now)
	case was:
		return s.event(api.WatchDeleted, c.before)
	}
	return nil
}

// compare reports whether the reader knows the object of a change, and whether the object matches
// now. It updates the objects that the reader knows.
func (s *objectStream) compare(ctx context.Context, c objectChange) (was, is bool, err error) {
	key := cmp.Or(c.now, c.before).Key()
	if c.now != nil {
		if is, err = s.selects(ctx, c.now); err != nil {
			return false, false, err
		}
	}
	_, was = s.shown[key]
	switch {
	case is && !was:
		// A clone, because the key of an object shares the memory of the whole object.
		s.shown[event.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)}] = struct{}{}
	case was && !is:
		delete(s.shown, key)
	}
	return was, is, nil
}

// selects reports whether an object matches the index, the labels and the filter. It shares
// the limit of concurrent evaluations with the queries.
func (s *objectStream) selects(ctx context.Context, o *event.Object) (bool, error) {
	leave, err := s.busy.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	if s.query.Index != "" && !s.inventory.catalog.Has(s.Source, s.query.Index, s.query.Value, o) {
		return false, nil
	}
	is, err := s.matches(ctx, o)
	if err != nil {
		return false, &api.QueryError{Message: fmt.Sprintf("filter: on %s: %v", o, err)}
	}
	return is, nil
}

func (s *objectStream) event(kind string, o *event.Object) error {
	return s.show(api.WatchEvent{Type: kind, Object: Redacted(o, shownAs).JSON()})
}
