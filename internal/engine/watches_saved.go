package engine

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// kindChange and kindDue are the kinds of records of a route's rules for a change whose dependents
// are not known yet, and for an object that is due. The other kinds are those of package pipeline.
const (
	kindChange = checkpoint.KindChange
	kindDue    = checkpoint.KindDue
)

// journal has the elements of a set that differ from the checkpoint. The zero value records
// nothing.
type journal[K comparable] struct {
	changed, saved map[K]struct{}
}

func newJournal[K comparable]() journal[K] {
	return journal[K]{make(map[K]struct{}), make(map[K]struct{})}
}

func (j journal[K]) add(k K) {
	if j.changed != nil {
		j.changed[k] = struct{}{}
	}
}

// remove removes an element; one that was added since the last cut leaves no trace.
func (j journal[K]) remove(k K) {
	if _, saved := j.saved[k]; saved {
		j.changed[k] = struct{}{}
	} else {
		delete(j.changed, k)
	}
}

func (j journal[K]) removeAll() {
	clear(j.changed)
	maps.Copy(j.changed, j.saved)
}

// merge adds the elements of another journal.
func (j journal[K]) merge(other journal[K]) {
	if j.changed != nil {
		maps.Copy(j.changed, other.changed)
		maps.Copy(j.saved, other.saved)
	}
}

// restored records that the checkpoint has an element.
func (j journal[K]) restored(k K) {
	if j.saved != nil {
		j.saved[k] = struct{}{}
	}
}

// handOver calls tell for each element that was added or removed. tell reports whether it is in the
// set.
func (j journal[K]) handOver(tell func(K) bool) {
	for k := range j.changed {
		if tell(k) {
			j.saved[k] = struct{}{}
		} else {
			delete(j.saved, k)
		}
	}
	clear(j.changed)
}

// Dirty returns the changes since the last call, for a cut. It is called under the cut locks of all
// watches: a change is in the same cut as the resourceVersion that includes it, and an object is
// due until its delta is pending.
func (q *Watches) Dirty() []checkpoint.RouteCut {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	cuts := q.retired
	q.retired = nil
	for _, one := range q.all {
		one.mu.Lock()
		cuts = append(cuts, one.cut()...)
		one.mu.Unlock()
	}
	return cuts
}

// cut returns the changes of the route, if there are any. mu is held.
func (one *watchedRoute) cut() []checkpoint.RouteCut {
	var records []checkpoint.RuleRecord
	// A record without a value removes the former one.
	one.changeJournal.handOver(func(n uint64) bool {
		record := checkpoint.RuleRecord{Kind: kindChange, Key: binary.BigEndian.AppendUint64(nil, n)}
		i, there := slices.BinarySearchFunc(one.changes, n, func(c change, n uint64) int { return cmp.Compare(c.n, n) })
		if there {
			record.Value = encodeChange(one.changes[i].delta)
		}
		records = append(records, record)
		return there
	})
	one.dueJournal.handOver(func(ref cel.Ref) bool {
		_, there := one.due[ref]
		// The object that is being emitted counts as due until its delta is pending in the route.
		there = there || one.putting != nil && *one.putting == ref
		record := checkpoint.RuleRecord{Kind: kindDue, Key: []byte(ref.Key.Namespace + "\x00" + ref.Key.Name + "\x00" + ref.UID)}
		if there {
			record.Value = []byte{}
		}
		records = append(records, record)
		return there
	})
	if len(records) == 0 {
		return nil
	}
	return []checkpoint.RouteCut{{Name: one.route.ID, Rules: records}}
}

// encodeChange encodes a change. A change about a Secret would be incomplete after a restart and
// could not be evaluated; it is encoded as one that everything depends on.
func encodeChange(d *event.Delta) []byte {
	if d == nil || !checkpoint.Whole(d) {
		return []byte{}
	}
	return checkpoint.EncodeDelta(d)
}

// Restore restores the pending work of routes after a restart, or after they were removed.
// comesBack selects them by their ids. It is called before Use.
func (q *Watches) Restore(db *checkpoint.DB, all []*watchedRoute, routes []compile.Route, resource func(source string) *event.Resource, comesBack func(id string) bool) error {
	q.retiring = nil // of an abandoned reload
	for i := range routes {
		p := &routes[i]
		if !comesBack(p.ID) {
			continue
		}
		records, err := db.LoadRules(p.ID, kindChange, kindDue)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(q *watchedRoute) bool { return q.route == p })
		if len(records) == 0 {
			continue
		}
		if at < 0 { // the route has no watches any more
			q.retiring = append(q.retiring, checkpoint.RouteCut{Name: p.ID, Rules: removed(records)})
			continue
		}
		one := all[at]
		one.restore(records, resource)
		q.deps.Log.Info("resuming the pending work of watches", "route", p.Name, "changes", len(one.changes), "objects", len(one.order))
	}
	return nil
}

// restore restores the pending work of the route from its records.
func (one *watchedRoute) restore(records []checkpoint.RuleRecord, resource func(source string) *event.Resource) {
	one.mu.Lock()
	defer one.mu.Unlock()
	for _, record := range records {
		switch record.Kind {
		case kindChange:
			one.restoreChange(record, resource)
		case kindDue:
			one.restoreDue(record)
		}
	}
}

// removed returns records that remove these.
func removed(records []checkpoint.RuleRecord) []checkpoint.RuleRecord {
	gone := slices.Clone(records)
	for i := range gone {
		gone[i].Value = nil
	}
	return gone
}

// restoreChange restores a waiting change. Everything depends on an unreadable one. mu is held.
func (one *watchedRoute) restoreChange(record checkpoint.RuleRecord, resource func(source string) *event.Resource) {
	if len(record.Key) != 8 {
		return
	}
	var d *event.Delta
	if len(record.Value) > 0 {
		d, _ = checkpoint.DecodeDelta(record.Value, func(source string, saved event.Resource) *event.Resource {
			if known := resource(source); known != nil {
				return known
			}
			return &saved
		})
	}
	n := binary.BigEndian.Uint64(record.Key)
	one.changeJournal.restored(n)
	one.last = max(one.last, n)
	if one.wants(d) {
		one.changes = append(one.changes, change{n, d})
	} else {
		one.changeJournal.remove(n)
	}
}

// restoreDue makes an object due again. mu is held.
func (one *watchedRoute) restoreDue(record checkpoint.RuleRecord) {
	parts := strings.Split(string(record.Key), "\x00")
	if len(parts) != 3 {
		return
	}
	ref := cel.Ref{Key: event.Key{Namespace: parts[0], Name: parts[1]}, UID: parts[2]}
	one.enqueue(ref)
	one.dueJournal.restored(ref)
}
