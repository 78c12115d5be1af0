package rules

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// DeleteHolds are the delete holds of a route: each [event.Deleted] or [event.Deselected] is held
// for a while, and cancelled if an object with the same name, or the same key, is created in that
// time.
//
// Like [Conditions], it has no lock and no clock.
type DeleteHolds struct {
	length time.Duration
	share  HoldShare
	wheel  *timer.Wheel
	due    func(*DeleteHold)

	all     map[string]*DeleteHold // by source, namespace, name and uid
	bytes   int64                  // of their objects
	byName  map[string][]*DeleteHold
	byKey   map[string][]*DeleteHold
	changed []*DeleteHold // since the last Dirty
	removed []string      // the keys of records whose holds have ended
	clock   wallClock

	// Untold is called with each delete that is held, or that is cancelled; nil: it is not called.
	Untold func(Untold)
}

// DeleteHold is one held delete.
type DeleteHold struct {
	timer.Node

	set     *DeleteHolds
	delta   *event.Delta
	key     string        // the key of the route; empty: none
	since   time.Duration // the time of the deletion
	wall    time.Time     // the same by the wall clock of that moment; it is reported
	over    bool          // cancelled or fired
	late    bool          // expired while the router was down
	saved   bool          // it has a record
	changed bool          // it is in DeleteHolds.changed
}

// HoldShare bounds the objects and bytes of the delete holds of several routes together.
type HoldShare struct {
	Objects *Share // the number of the held deletes, and of the objects of conditions
	Bytes   *Share // of the objects of the held deletes
}

// NewDeleteHolds returns an empty set, whose holds use share. The caller checks the share. due is
// called without any lock when a timer expires; the owner then calls [DeleteHolds.Fire] under its
// lock.
func NewDeleteHolds(length time.Duration, share HoldShare, wheel *timer.Wheel, due func(*DeleteHold)) *DeleteHolds {
	return &DeleteHolds{length: length, share: share, wheel: wheel, due: due, all: map[string]*DeleteHold{}, byName: map[string][]*DeleteHold{}, byKey: map[string][]*DeleteHold{}}
}

// Due implements timer.Owner.
func (a *DeleteHold) Due(*timer.Node) { a.set.due(a) }

// Delta returns the delete.
func (a *DeleteHold) Delta() *event.Delta { return a.delta }

// Len returns the number of held deletes.
func (s *DeleteHolds) Len() int { return len(s.all) }

// Bytes returns the bytes of the objects of the held deletes.
func (s *DeleteHolds) Bytes() int64 { return s.bytes }

// All yields the held deletes, in no order.
func (s *DeleteHolds) All() iter.Seq[*DeleteHold] { return maps.Values(s.all) }

// Of returns the last held delete of a name, or nil.
func (s *DeleteHolds) Of(source string, key event.Key) *DeleteHold {
	all := s.byName[nameOf(source, key)]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Describe returns the time of the deletion and of its report, by the wall clock.
func (s *DeleteHolds) Describe(a *DeleteHold, now time.Time) (since, due time.Time) {
	return a.wall, a.onClock(now).Add(a.At() - a.since)
}

// onClock returns the time of the deletion by the wall clock of now. It differs from wall if that
// clock has jumped.
func (a *DeleteHold) onClock(now time.Time) time.Time {
	return afterJump(a.wall, now.Round(0).Add(a.since-a.set.wheel.In(now)))
}

func nameOf(source string, key event.Key) string {
	return strings.Join([]string{source, key.Namespace, key.Name}, "\x00")
}

func (a *DeleteHold) name() string { return nameOf(a.delta.Source, a.delta.Key()) }

func (a *DeleteHold) size() int64 { return int64(len(a.delta.Object().JSON())) }

func (a *DeleteHold) recordKey() string { return a.name() + "\x00" + a.delta.Object().UID() }

// Hold holds a delete. key is the key of the route; empty: none.
func (s *DeleteHolds) Hold(d *event.Delta, key string, now time.Time) {
	a := &DeleteHold{set: s, delta: d, key: key, since: s.wheel.In(now), wall: now.Round(0)}
	s.add(a)
	s.note(a)
	if s.Untold != nil {
		s.Untold(Untold{Delta: d, Until: now.Add(s.length)})
	}
}

func (s *DeleteHolds) add(a *DeleteHold) {
	if before := s.all[a.recordKey()]; before != nil {
		s.forget(before)
	}
	s.all[a.recordKey()] = a
	s.count(a, 1)
	s.byName[a.name()] = append(s.byName[a.name()], a)
	if a.key != "" {
		s.byKey[a.key] = append(s.byKey[a.key], a)
	}
	s.wheel.Set(&a.Node, a.since+s.length, a)
}

// Cancel drops the held deletes of an object that exists again, and of its key. It returns their
// number.
func (s *DeleteHolds) Cancel(source string, name event.Key, key string) (n int) {
	back := slices.Clone(s.byName[nameOf(source, name)])
	if key != "" {
		back = append(back, s.byKey[key]...)
	}
	for _, a := range back {
		if !a.over {
			s.Forget(a)
			n++
		}
	}
	return n
}

// Fire returns the delta to report after a timer has expired; nil: the delete was cancelled, or the
// hold was extended. The delta counts as seen at its due time.
func (s *DeleteHolds) Fire(a *DeleteHold, now time.Time) *event.Delta {
	if a.over || a.At() > s.wheel.In(now) {
		return nil
	}
	lasted := *a.delta
	_, due := s.Describe(a, now)
	lasted.Since, lasted.Seen, lasted.Late = a.wall, withWall(now.Add(a.At()-s.wheel.In(now)), due), a.late
	transit.Of(&lasted).Durable = nil
	s.forget(a)
	return &lasted
}

// Forget drops one held delete, because its object exists again.
func (s *DeleteHolds) Forget(a *DeleteHold) {
	if a.over {
		return
	}
	s.forget(a)
	if s.Untold != nil {
		s.Untold(Untold{Delta: a.delta, Fate: Cancelled})
	}
}

func (s *DeleteHolds) forget(a *DeleteHold) {
	s.wheel.Stop(&a.Node)
	a.over = true
	delete(s.all, a.recordKey())
	s.count(a, -1)
	drop(s.byName, a.name(), a)
	drop(s.byKey, a.key, a)
	if a.saved {
		s.removed = append(s.removed, a.recordKey())
	}
}

// count counts a hold that was added, or removed if n is -1.
func (s *DeleteHolds) count(a *DeleteHold, n int64) {
	s.bytes += n * a.size()
	s.share.Objects.add(n)
	s.share.Bytes.add(n * a.size())
}

func drop(from map[string][]*DeleteHold, key string, a *DeleteHold) {
	left := slices.DeleteFunc(from[key], func(other *DeleteHold) bool { return other == a })
	if from[key] = left; len(left) == 0 {
		delete(from, key)
	}
}

// Configure changes the length of the holds, counted from the deletion. Holds that are already
// longer are due now.
func (s *DeleteHolds) Configure(length time.Duration, now time.Time) {
	if s.length == length {
		return
	}
	s.length = length
	at := s.wheel.In(now)
	for _, a := range s.all {
		s.wheel.Set(&a.Node, max(a.since+length, min(a.At(), at)), a)
	}
}

// Abandon drops all held deletes; the next Dirty returns their removal.
func (s *DeleteHolds) Abandon() {
	for _, a := range s.all {
		s.forget(a)
	}
}

// Close stops all timers and drops all held deletes without a trace in Dirty.
func (s *DeleteHolds) Close() {
	s.Abandon()
	s.removed, s.changed = nil, nil
}

func (s *DeleteHolds) note(a *DeleteHold) {
	if !a.changed {
		a.changed = true
		s.changed = append(s.changed, a)
	}
}

// Dirty returns the changes since the last call. If a key occurs twice, the last record counts.
// encode encodes a delta.
func (s *DeleteHolds) Dirty(now time.Time, encode func(*event.Delta) []byte) (records []Record) {
	if s.clock.jumped(now, s.wheel.In(now)) {
		for _, a := range s.all {
			s.note(a)
		}
	}
	for _, key := range s.removed {
		records = append(records, Record{Key: key})
	}
	for _, a := range s.changed {
		if a.changed = false; a.over {
			continue
		}
		a.saved = true
		since := a.onClock(now)
		v := binary.AppendVarint(nil, since.UnixNano())
		v = binary.AppendUvarint(v, uint64(len(a.key)))
		records = append(records, Record{Key: a.recordKey(), Value: append(append(v, a.key...), encode(a.delta)...)})
	}
	s.removed, s.changed = nil, nil
	return records
}

var errHold = errors.New("the record of a delete hold is damaged: it is too short")

// Restore restores a held delete from its record, unless it is already held. decode decodes a
// delta.
func (s *DeleteHolds) Restore(r Record, decode func([]byte) (*event.Delta, error), now time.Time) error {
	in := values{rest: r.Value}
	since, length := in.time(), in.uint()
	if in.short || length > uint64(len(in.rest)) {
		return errHold
	}
	key := string(in.rest[:length])
	d, err := decode(in.rest[length:])
	if err != nil {
		return err
	}
	if s.all[r.Key] != nil {
		return nil
	}
	at := s.wheel.In(now)
	a := &DeleteHold{set: s, delta: d, key: key, since: at - max(0, now.Round(0).Sub(since)), wall: since.In(now.Location()), saved: true}
	a.late = a.since+s.length <= at
	if since.After(now) {
		a.wall = now.Round(0)
		s.note(a)
	}
	s.add(a)
	return nil
}
