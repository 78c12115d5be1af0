package rules

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// Absences is what a route knows that tells only of objects which are gone for good: each [event.Deleted] or [event.Deselected] is held
// for a while, and forgotten if an object of that name, or of that key, comes back meanwhile.
//
// It has no lock and no clock, as [Conditions].
type Absences struct {
	length time.Duration
	wheel  *timer.Wheel
	due    func(*Absence)

	all     map[string]*Absence // by source, namespace, name and uid
	byName  map[string][]*Absence
	byKey   map[string][]*Absence
	changed []*Absence
	gone    []string
	clock   wallClock
}

// Absence is an object that is gone, and may come back.
type Absence struct {
	timer.Node

	set     *Absences
	delta   *event.Delta
	key     string // of the route's own; empty: none
	since   time.Duration
	over    bool
	late    bool
	saved   bool
	changed bool
}

// NewAbsences makes absences that hold nothing. due is called, without any lock, when the time of one has come; its owner then calls [Absences.Fire]
// under its lock.
func NewAbsences(length time.Duration, wheel *timer.Wheel, due func(*Absence)) *Absences {
	return &Absences{length: length, wheel: wheel, due: due, all: map[string]*Absence{}, byName: map[string][]*Absence{}, byKey: map[string][]*Absence{}}
}

// Due implements timer.Owner.
func (a *Absence) Due(*timer.Node) { a.set.due(a) }

// Delta returns what is held.
func (a *Absence) Delta() *event.Delta { return a.delta }

// Len returns how many are held.
func (s *Absences) Len() int { return len(s.all) }

// All yields what is held, in no order.
func (s *Absences) All() iter.Seq[*Absence] { return maps.Values(s.all) }

// Of returns the last object of a name that is held; nil: none is.
func (s *Absences) Of(source string, key event.Key) *Absence {
	all := s.byName[nameOf(source, key)]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Describe returns since when the object of a is gone, and when that is told, by the wall clock.
func (s *Absences) Describe(a *Absence, now time.Time) (since, due time.Time) {
	at := s.wheel.In(now)
	return now.Round(0).Add(a.since - at), now.Round(0).Add(a.At() - at)
}

func nameOf(source string, key event.Key) string {
	return strings.Join([]string{source, key.Namespace, key.Name}, "\x00")
}

func (a *Absence) name() string { return nameOf(a.delta.Source, a.delta.Key()) }

func (a *Absence) recordKey() string { return a.name() + "\x00" + a.delta.Object().UID() }

// Hold holds d, whose object has that key of the route's own; empty: none.
func (s *Absences) Hold(d *event.Delta, key string, now time.Time) {
	a := &Absence{set: s, delta: d, key: key, since: s.wheel.In(now)}
	s.add(a)
	s.note(a)
}

func (s *Absences) add(a *Absence) {
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

// Return says that an object is there, and returns how many that were held are forgotten because of that.
func (s *Absences) Return(source string, name event.Key, key string) (n int) {
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

// Fire returns the delta of an absence that has lasted; nil: it has not, by now. It counts as seen when it was due.
func (s *Absences) Fire(a *Absence, now time.Time) *event.Delta {
	if a.over || a.At() > s.wheel.In(now) {
		return nil
	}
	lasted := *a.delta
	lasted.Since, lasted.Seen, lasted.Late = now.Round(0).Add(a.since-s.wheel.In(now)), now.Add(a.At()-s.wheel.In(now)), a.late
	lasted.Durable = nil
	s.forget(a)
	return &lasted
}

// Forget forgets an absence.
func (s *Absences) Forget(a *Absence) {
	if !a.over {
		s.forget(a)
	}
}

func (s *Absences) forget(a *Absence) {
	s.wheel.Stop(&a.Node)
	a.over = true
	delete(s.all, a.recordKey())
	drop(s.byName, a.name(), a)
	drop(s.byKey, a.key, a)
	if a.saved {
		s.gone = append(s.gone, a.recordKey())
	}
}

func drop(from map[string][]*Absence, key string, a *Absence) {
	left := slices.DeleteFunc(from[key], func(other *Absence) bool { return other == a })
	if from[key] = left; len(left) == 0 {
		delete(from, key)
	}
}

// Configure changes how long an object must be gone, counted from when it went. What is over by that is due now.
func (s *Absences) Configure(length time.Duration, now time.Time) {
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
func (s *Absences) Abandon() {
	for _, a := range s.all {
		s.forget(a)
	}
}

// Close stops all timers. Nothing is held after it, and nothing says so.
func (s *Absences) Close() {
	s.Abandon()
	s.gone, s.changed = nil, nil
}

// Keys returns the keys of what was handed over and has not been said to be gone.
func (s *Absences) Keys() (keys []string) {
	keys = s.gone
	for key, a := range s.all {
		if a.saved {
			keys = append(keys, key)
		}
	}
	return keys
}

// Renew makes Dirty hand over everything, as if nothing of it had been handed over before.
func (s *Absences) Renew() {
	s.gone = nil
	for _, a := range s.all {
		a.saved = false
		s.note(a)
	}
}

func (s *Absences) note(a *Absence) {
	if !a.changed {
		a.changed = true
		s.changed = append(s.changed, a)
	}
}

// Dirty hands over what changed since the last call, as of now; of one key the last one counts. encode writes a delta down.
func (s *Absences) Dirty(now time.Time, encode func(*event.Delta) []byte) (records []Record) {
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
		since := now.Round(0).Add(a.since - s.wheel.In(now)).UnixNano()
		v := binary.AppendVarint(nil, since)
		v = binary.AppendUvarint(v, uint64(len(a.key)))
		records = append(records, Record{Key: a.recordKey(), Value: append(append(v, a.key...), encode(a.delta)...)})
	}
	s.gone, s.changed = nil, nil
	return records
}

var errAbsence = errors.New("what is known of an object that is gone is cut short")

// Restore takes up what was held before a restart, unless it is held by now. decode reads a delta.
func (s *Absences) Restore(r Record, decode func([]byte) (*event.Delta, error), now time.Time) error {
	in := values{rest: r.Value}
	since, length := in.time(), in.uint()
	if in.short || length > uint64(len(in.rest)) {
		return errAbsence
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
	a := &Absence{set: s, delta: d, key: key, since: at - max(0, now.Round(0).Sub(since)), saved: true}
	a.late = a.since+s.length <= at
	if since.After(now) {
		s.note(a)
	}
	s.add(a)
	return nil
}
