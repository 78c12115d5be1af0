package rules

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Configure changes the configuration. A pending condition is due For after it began, or now if
// that is over. A reminder is due Every after the last report. Conditions of removed sources stay,
// and the caller ends them, see [Condition.Former]; without any source, all are dropped.
func (s *Conditions) Configure(cfg ConditionConfig, now time.Time) {
	old := s.cfg
	if !slices.Equal(s.sources, cfg.Sources) {
		s.move(cfg.Sources)
	}
	s.cfg = cfg
	if cfg.Limit == nil {
		s.groups.dissolve(s.All())
	}
	for _, g := range s.groups.byKey {
		s.groups.rouse(g)
	}
	for c := range s.All() {
		switch {
		case c.state == pending && cfg.For != old.For:
			s.wheel.Set(&c.Node, max(c.since+cfg.For, min(c.At(), s.wheel.In(now))), c)
		case c.state == reported && cfg.Every != old.Every:
			c.resetReminder(old.Every, now)
		}
	}
}

// resetReminder sets the time of the next reminder.
func (c *Condition) resetReminder(was time.Duration, now time.Time) {
	s := c.set
	s.changes.note(c)
	switch at := s.wheel.In(now); {
	case s.cfg.Every == 0:
		s.wheel.Stop(&c.Node)
	case was == 0:
		s.wheel.Set(&c.Node, at+s.cfg.Every, c)
	default:
		s.wheel.Set(&c.Node, max(at, c.At()-was+s.cfg.Every), c)
	}
}

// move replaces the sources, and keeps former ones with conditions behind them. The hash of a
// condition stays the same.
func (s *Conditions) move(sources []string) {
	if len(sources) == 0 {
		for c := range s.All() {
			s.forget(c)
		}
	}
	next := slices.Clone(sources)
	move := make([]int, len(s.sources))
	for c := range s.All() {
		source := c.Source()
		if move[c.source] = slices.Index(next, source); move[c.source] < 0 {
			move[c.source] = len(next)
			next = append(next, source)
		}
	}
	s.sources = next
	for c := range s.All() {
		c.source = uint16(move[c.source]) //nolint:gosec // of few sources
	}
}

// Former reports whether the source of a condition is no longer configured.
func (c *Condition) Former() bool { return int(c.source) >= len(c.set.cfg.Sources) }

// Begin starts a complete observation of all objects. The caller then ends the conditions of
// objects that were not observed, see [Condition.Visited] and [Conditions.End].
func (s *Conditions) Begin() {
	for c := range s.All() {
		c.flags &^= visited
	}
}

// Visited reports whether the object was observed since Begin.
func (c *Condition) Visited() bool { return c.flags&visited != 0 }

// End ends the conditions for which ends returns true, because the route does not see their objects
// any more, and appends the resulting edges.
func (s *Conditions) End(ends func(*Condition) bool, now time.Time, edges []Edge) []Edge {
	for c := range s.All() {
		if ends(c) {
			gone := &event.Delta{Source: c.Source(), Op: event.Deleted, Old: c.object, Stale: true, Seen: now}
			edges = s.end(c, gone, now, edges)
		}
	}
	return edges
}

// Dirty returns the records that changed since the last call. If a key occurs twice, the last
// record counts. A condition that began and ended between two calls leaves no record.
func (s *Conditions) Dirty(now time.Time) (records []Record) {
	if s.changes.clock.jumped(now, s.wheel.In(now)) {
		for c := range s.All() {
			s.changes.note(c)
		}
	}
	return s.changes.take(now)
}

func (c *Condition) recordKey() string {
	key := c.object.Key()
	return strings.Join([]string{c.Source(), key.Namespace, key.Name}, "\x00")
}

// Flags in the second byte of a record, beside byTime.
const (
	recordKeyed    = 1 << iota // the record contains the key of the limit
	recordReported             // see group
	recordSeveral
	_             // byTime
	recordShifted // the wall clock has jumped since it began
)

// value encodes a condition: the state, the reported start, the next reminder, began, version, the
// number of reminders, the start by the wall clock of now if it differs, the key of the limit, and
// the uid.
func (c *Condition) value(now time.Time) []byte {
	v := []byte{byte(c.state), byte(c.flags & (byTime | failed))}
	v = binary.AppendVarint(v, c.wall)
	v = binary.AppendVarint(v, c.reminds(now))
	v = binary.AppendUvarint(v, c.began)
	v = binary.AppendUvarint(v, c.version)
	v = binary.AppendUvarint(v, uint64(c.repeat))
	// Optional parts follow, announced by flags: most conditions have none.
	if since := c.onClock(now).UnixNano(); since != c.wall {
		v[1] |= recordShifted
		v = binary.AppendVarint(v, since)
	}
	if c.member != nil {
		v[1] |= recordKeyed
		if c.member.reported {
			v[1] |= recordReported
		}
		if c.member.several {
			v[1] |= recordSeveral
		}
		key := c.member.key
		if key == c.ownKey() { // most limits have no other
			key = ""
		}
		v = binary.AppendUvarint(v, uint64(len(key)))
		v = append(v, key...)
	}
	return append(v, c.object.UID()...)
}

// reminds returns the time of the next reminder in nanoseconds of Unix time; 0: none.
func (c *Condition) reminds(now time.Time) int64 {
	if c.set.cfg.Every == 0 || c.state != reported {
		return 0
	}
	return c.wallTime(c.At(), now).UnixNano()
}

var errCondition = errors.New("the record of a condition is damaged: it is too short")

// Restore restores a condition from its record, unless it is already tracked. resource returns the
// resource of a source. A condition of a removed source is restored too, see [Condition.Former];
// without any source, its record is deleted. An error means that the record is damaged.
func (s *Conditions) Restore(r Record, resource func(source string) *event.Resource, now time.Time) error {
	parts := strings.Split(r.Key, "\x00")
	if len(parts) != 3 || len(r.Value) < 2 || state(r.Value[0]) > failing || state(r.Value[0]) == over {
		return errCondition
	}
	c := &Condition{set: s, state: state(r.Value[0]), flags: saved | flag(r.Value[1])&(byTime|failed)}
	in := values{rest: r.Value[2:]}
	since, due := in.time(), in.time()
	c.began, c.version = in.uint(), in.uint()
	c.repeat = uint32(in.uint()) //nolint:gosec // it was one
	c.wall = since.UnixNano()
	if r.Value[1]&recordShifted != 0 {
		since = in.time()
	}
	var limitKey string
	if r.Value[1]&recordKeyed != 0 {
		limitKey = in.text()
	}
	if in.short {
		return errCondition
	}
	key := event.Key{Namespace: parts[1], Name: parts[2]}
	at, h, known := s.find(parts[0], key)
	switch {
	case len(s.cfg.Sources) == 0:
		s.changes.removed = append(s.changes.removed, r.Key)
		return nil
	case at < 0:
		at, h = len(s.sources), s.index.census.hash(parts[0], key)
		s.sources = append(slices.Clip(s.sources), parts[0])
	case known != nil:
		return nil
	}
	c.source = uint16(at) //nolint:gosec // of few sources
	c.object = event.Identity(resource(parts[0]), key, string(in.rest))
	s.index.add(h, c)
	s.counts[c.state]++
	c.resume(since, due, now)
	if s.cfg.Limit != nil && (r.Value[1]&recordKeyed != 0 || c.state == suppressed) {
		s.groups.rejoin(c, limitKey, r.Value[1])
	}
	return nil
}

// resume sets the timer of a restored condition. If the wall clock was set back, so that the start
// or the next reminder is too far in the future, the interval starts now.
func (c *Condition) resume(since, due, now time.Time) {
	s := c.set
	at, ago := s.wheel.In(now), now.Round(0).Sub(since)
	c.since = at - max(0, ago)
	if ago < 0 {
		c.wall = now.UnixNano()
	}
	if ago < 0 || due.Sub(now.Round(0)) > s.cfg.Every {
		s.changes.note(c)
	}
	switch {
	case c.state == pending:
		if c.since+s.cfg.For <= at {
			c.flags |= late
		}
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
	case c.state == suppressed: // see rejoin; or the limit was removed
		s.wheel.Set(&c.Node, at, c)
	case c.state == skipped || c.state == failing || s.cfg.Every == 0:
	default:
		next := at + min(due.Sub(now.Round(0)), s.cfg.Every)
		if due.UnixNano() == 0 { // it had no reminders
			next = at + s.cfg.Every
		}
		if next <= at {
			c.flags |= late
		}
		s.wheel.Set(&c.Node, next, c)
	}
}

// values decodes the fields of a record.
type values struct {
	rest  []byte
	short bool
}

func (v *values) uint() uint64 {
	n, size := binary.Uvarint(v.rest)
	v.take(size)
	return n
}

func (v *values) time() time.Time {
	n, size := binary.Varint(v.rest)
	v.take(size)
	return time.Unix(0, n)
}

func (v *values) text() string {
	n := v.uint()
	if n > uint64(len(v.rest)) {
		v.rest, v.short = nil, true
		return ""
	}
	text := string(v.rest[:n])
	v.rest = v.rest[n:]
	return text
}

func (v *values) take(size int) {
	if size <= 0 {
		v.rest, v.short = nil, true
		return
	}
	v.rest = v.rest[size:]
}

// Description describes a condition to users.
type Description struct {
	Since, Due time.Time // by the wall clock; Due is zero if no report is scheduled
	State      string
	Repeat     int
}

// Describe returns the description of a condition as of now.
func (c *Condition) Describe(now time.Time) Description {
	d := Description{Since: c.start(now), State: [...]string{"over", "pending", "entered", "skipped", "suppressed", "failing"}[c.state], Repeat: int(c.repeat)}
	if c.awaits() {
		d.Due = c.onClock(now).Add(c.At() - c.since)
	}
	return d
}

// changes is the dirty set: the conditions that differ from their records in the checkpoint.
type changes struct {
	changed []*Condition // may contain removed conditions
	removed []string     // the keys of records whose conditions were removed
	clock   wallClock
}

// note marks a condition as dirty.
func (d *changes) note(c *Condition) {
	if c.flags&changed == 0 {
		c.flags |= changed
		d.changed = append(d.changed, c)
	}
}

// forget marks the record of a removed condition for deletion.
func (d *changes) forget(c *Condition) {
	if c.flags&saved != 0 {
		d.removed = append(d.removed, c.recordKey())
	}
}

// take returns the records of the dirty set, and empties it.
func (d *changes) take(now time.Time) (records []Record) {
	for _, key := range d.removed {
		records = append(records, Record{Key: key})
	}
	for _, c := range d.changed {
		if c.flags &^= changed; c.state == over {
			continue
		}
		c.flags |= saved
		records = append(records, Record{Key: c.recordKey(), Value: c.value(now)})
	}
	clear(d.changed)
	d.removed, d.changed = nil, d.changed[:0]
	return records
}

// drop empties the dirty set.
func (d *changes) drop() { d.changed, d.removed = nil, nil }
