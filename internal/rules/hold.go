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
	"github.com/deltarouter/deltarouter/pkg/event"
)

// DeleteHolds are the deletes that a route holds: each [event.Deleted] or [event.Deselected] is
// held for a while, and cancelled if an object of that name, or of that key, comes back meanwhile.
//
// It has no lock and no clock, as [Conditions].
type DeleteHolds struct {
	length time.Duration
	wheel  *timer.Wheel
	due    func(*DeleteHold)

	all     map[string]*DeleteHold // by source, namespace, name and uid
	byName  map[string][]*DeleteHold
	byKey   map[string][]*DeleteHold
	changed []*DeleteHold // since the last Dirty
	gone    []string      // the keys of records whose deletes are not held any more
	clock   wallClock
}

// DeleteHold is a delete that is held, because its object may come back.
type DeleteHold struct {
	timer.Node

	set     *DeleteHolds
	delta   *event.Delta
	key     string        // of the route's own; empty: none
	since   time.Duration // when the object was deleted
	wall    time.Time     // likewise by the wall clock of then, which is reported
	over    bool          // it is cancelled, or it has fired
	late    bool          // it expired while the router was down
	saved   bool          // it has a record
	changed bool          // it is in DeleteHolds.changed
}

// NewDeleteHolds holds nothing yet. due is called, without any lock, when a timer expires; its
// owner then calls [DeleteHolds.Fire] under its lock.
func NewDeleteHolds(length time.Duration, wheel *timer.Wheel, due func(*DeleteHold)) *DeleteHolds {
	return &DeleteHolds{length: length, wheel: wheel, due: due, all: map[string]*DeleteHold{}, byName: map[string][]*DeleteHold{}, byKey: map[string][]*DeleteHold{}}
}

// Due implements timer.Owner.
func (a *DeleteHold) Due(*timer.Node) { a.set.due(a) }

// Delta returns the delete.
func (a *DeleteHold) Delta() *event.Delta { return a.delta }

// Len returns how many deletes are held.
func (s *DeleteHolds) Len() int { return len(s.all) }

// All yields the deletes that are held, in no order.
func (s *DeleteHolds) All() iter.Seq[*DeleteHold] { return maps.Values(s.all) }

// Of returns the last delete of a name that is held, or nil.
func (s *DeleteHolds) Of(source string, key event.Key) *DeleteHold {
	all := s.byName[nameOf(source, key)]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Describe returns when the object was deleted and when the delete is reported, by the wall clock.
func (s *DeleteHolds) Describe(a *DeleteHold, now time.Time) (since, due time.Time) {
	return a.wall, a.onClock(now).Add(a.At() - a.since)
}

// onClock returns when the object was deleted by the wall clock of now, which is another time if
// that clock has jumped.
func (a *DeleteHold) onClock(now time.Time) time.Time {
	return unjumped(a.wall, now.Round(0).Add(a.since-a.set.wheel.In(now)))
}

func nameOf(source string, key event.Key) string {
	return strings.Join([]string{source, key.Namespace, key.Name}, "\x00")
}

func (a *DeleteHold) name() string { return nameOf(a.delta.Source, a.delta.Key()) }

func (a *DeleteHold) recordKey() string { return a.name() + "\x00" + a.delta.Object().UID() }

// Hold holds a delete. key is that of the route's own; empty: there is none.
func (s *DeleteHolds) Hold(d *event.Delta, key string, now time.Time) {
	a := &DeleteHold{set: s, delta: d, key: key, since: s.wheel.In(now), wall: now.Round(0)}
	s.add(a)
	s.note(a)
}

func (s *DeleteHolds) add(a *DeleteHold) {
	if before := s.all[a.recordKey()]; before != nil {
		s.forget(before)
	}
	s.all[a.recordKey()] = a
	s.byName[a.name()] = append(s.byName[a.name()], a)
	if a.key != "" {
		s.byKey[a.key] = append(s.byKey[a.key], a)
	}
	s.wheel.Set(&a.Node, a.since+s.length, a)
}

// Cancel forgets the deletes of an object that is back, and those of its key. It returns how many
// there were.
func (s *DeleteHolds) Cancel(source string, name event.Key, key string) (n int) {
	back := slices.Clone(s.byName[nameOf(source, name)])
	if key != "" {
		back = append(back, s.byKey[key]...)
	}
	for _, a := range back {
		if !a.over {
			s.forget(a)
			n++
		}
	}
	return n
}

// Fire returns the delta to report when a timer has expired; nil: the delete was cancelled, or is
// held longer by now. The delta counts as seen when it was due.
func (s *DeleteHolds) Fire(a *DeleteHold, now time.Time) *event.Delta {
	if a.over || a.At() > s.wheel.In(now) {
		return nil
	}
	lasted := *a.delta
	_, due := s.Describe(a, now)
	lasted.Since, lasted.Seen, lasted.Late = a.wall, showing(now.Add(a.At()-s.wheel.In(now)), due), a.late
	lasted.Transit().Durable = nil
	s.forget(a)
	return &lasted
}

// Forget forgets one delete.
func (s *DeleteHolds) Forget(a *DeleteHold) {
	if !a.over {
		s.forget(a)
	}
}

func (s *DeleteHolds) forget(a *DeleteHold) {
	s.wheel.Stop(&a.Node)
	a.over = true
	delete(s.all, a.recordKey())
	drop(s.byName, a.name(), a)
	drop(s.byKey, a.key, a)
	if a.saved {
		s.gone = append(s.gone, a.recordKey())
	}
}

func drop(from map[string][]*DeleteHold, key string, a *DeleteHold) {
	left := slices.DeleteFunc(from[key], func(other *DeleteHold) bool { return other == a })
	if from[key] = left; len(left) == 0 {
		delete(from, key)
	}
}

// Configure changes how long deletes are held, counted from the delete. Those that were held that
// long are due now.
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

// Abandon forgets everything; the next Dirty says so.
func (s *DeleteHolds) Abandon() {
	for _, a := range s.all {
		s.forget(a)
	}
}

// Close stops all timers. Nothing is held after it, and nothing says so.
func (s *DeleteHolds) Close() {
	s.Abandon()
	s.gone, s.changed = nil, nil
}

func (s *DeleteHolds) note(a *DeleteHold) {
	if !a.changed {
		a.changed = true
		s.changed = append(s.changed, a)
	}
}

// Dirty returns the changes since the last call; of one key the last record counts. encode encodes
// a delta.
func (s *DeleteHolds) Dirty(now time.Time, encode func(*event.Delta) []byte) (records []Record) {
	if s.clock.jumped(now, s.wheel.In(now)) {
		for _, a := range s.all {
			s.note(a)
		}
	}
	for _, key := range s.gone {
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
	s.gone, s.changed = nil, nil
	return records
}

var errHold = errors.New("the record of a delete that is held is cut short")

// Restore restores a delete that was held before a restart, unless it is held by now. decode
// decodes a delta.
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
