package rules

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Configure changes what the conditions are made of. What is pending is due For after it began, and now if that is over; what was told is told again Every after it
// was told last. Conditions about sources that are gone are forgotten.
func (s *Conditions) Configure(cfg ConditionConfig, now time.Time) {
	old := s.cfg
	move := make([]int, len(old.Sources))
	moved := len(old.Sources) != len(cfg.Sources)
	for i, source := range old.Sources {
		move[i] = slices.Index(cfg.Sources, source)
		moved = moved || move[i] != i
	}
	if moved {
		s.move(cfg.Sources, move)
	}
	s.cfg = cfg
	for c := range s.All() {
		switch {
		case c.state == pending && cfg.For != old.For:
			s.wheel.Set(&c.Node, max(c.since+cfg.For, min(c.At(), s.wheel.In(now))), c)
		case c.state != pending && c.state != skipped && cfg.Every != old.Every:
			s.remindAnew(c, old.Every, now)
		}
	}
}

// remindAnew sets when what was told is told again.
func (s *Conditions) remindAnew(c *Condition, was time.Duration, now time.Time) {
	s.note(c)
	switch at := s.wheel.In(now); {
	case s.cfg.Every == 0:
		s.wheel.Stop(&c.Node)
	case was == 0:
		s.wheel.Set(&c.Node, at+s.cfg.Every, c)
	default:
		s.wheel.Set(&c.Node, max(at, c.At()-was+s.cfg.Every), c)
	}
}

// move exchanges the sources: move has the new place of each, -1 of those that are gone.
func (s *Conditions) move(sources []string, move []int) {
	var stay []*Condition
	for c := range s.All() {
		if move[c.source] < 0 {
			s.forget(c)
		} else {
			stay = append(stay, c)
		}
	}
	clear(s.all)
	s.cfg.Sources = sources
	for _, c := range stay {
		c.source = uint16(move[c.source]) //nolint:gosec // of few sources
		h := s.census.hash(c.Source(), c.object.Key())
		c.next = s.all[h]
		s.all[h] = c
	}
}

// Begin is called before all objects are observed once more; End then forgets the conditions of objects that were not.
func (s *Conditions) Begin() {
	for c := range s.All() {
		c.flags &^= visited
	}
}

// End forgets the conditions of objects that were not observed since Begin, and appends the edges that this makes. complete reports whether
// all objects of a source were observed; of others nothing is forgotten.
func (s *Conditions) End(complete func(source string) bool, now time.Time, edges []*event.Delta) []*event.Delta {
	for c := range s.All() {
		if c.flags&visited == 0 && complete(c.Source()) {
			gone := &event.Delta{Source: c.Source(), Op: event.Deleted, Old: c.object, Stale: true, Seen: now}
			edges = s.end(c, gone, now, edges)
		}
	}
	return edges
}

// Keys returns the keys of what was handed over and has not been said to be gone.
func (s *Conditions) Keys() (keys []string) {
	keys = s.gone
	for c := range s.All() {
		if c.flags&saved != 0 {
			keys = append(keys, c.recordKey())
		}
	}
	return keys
}

// Renew makes Dirty hand over everything, as if nothing of it had been handed over before.
func (s *Conditions) Renew() {
	s.gone = nil
	for c := range s.All() {
		c.flags &^= saved
		s.note(c)
	}
}

// Dirty hands over what changed since the last call, as of now; of one key the last one counts. What comes and goes in between appears
// nowhere.
func (s *Conditions) Dirty(now time.Time) (records []Record) {
	if s.clock.jumped(now, s.wheel.In(now)) {
		for c := range s.All() {
			s.note(c)
		}
	}
	for _, key := range s.gone {
		records = append(records, Record{Key: key})
	}
	for _, c := range s.changed {
		if c.flags &^= changed; c.state == over {
			continue
		}
		c.flags |= saved
		records = append(records, Record{Key: c.recordKey(), Value: c.value(now)})
	}
	clear(s.changed)
	s.gone, s.changed = nil, s.changed[:0]
	return records
}

func (c *Condition) recordKey() string {
	key := c.object.Key()
	return strings.Join([]string{c.Source(), key.Namespace, key.Name}, "\x00")
}

// value is what is kept: the state, since when, when it is due, what tells it apart, how often it was told again, and the uid.
func (c *Condition) value(now time.Time) []byte {
	v := []byte{byte(c.state), byte(c.flags & byTime)}
	v = binary.AppendVarint(v, c.set.wall(c.since, now).UnixNano())
	v = binary.AppendVarint(v, c.reminds(now))
	v = binary.AppendUvarint(v, c.began)
	v = binary.AppendUvarint(v, c.version)
	v = binary.AppendUvarint(v, uint64(c.repeat))
	return append(v, c.object.UID()...)
}

// reminds returns when it is told again, in nanoseconds of Unix time; 0: never.
func (c *Condition) reminds(now time.Time) int64 {
	if c.set.cfg.Every == 0 || c.state != told && c.state != suppressed {
		return 0
	}
	return c.set.wall(c.At(), now).UnixNano()
}

var errCondition = errors.New("what is known of a condition is cut short")

// Restore takes up what was known of a condition before a restart, unless it is known by now. resource gives that of a source. One of a source
// that is gone is forgotten. An error says that the record cannot be read.
func (s *Conditions) Restore(r Record, resource func(source string) *event.Resource, now time.Time) error {
	parts := strings.Split(r.Key, "\x00")
	if len(parts) != 3 || len(r.Value) < 2 || state(r.Value[0]) > suppressed || state(r.Value[0]) == over {
		return errCondition
	}
	c := &Condition{set: s, state: state(r.Value[0]), flags: saved | flag(r.Value[1])&byTime}
	in := values{rest: r.Value[2:]}
	since, due := in.time(), in.time()
	c.began, c.version = in.uint(), in.uint()
	c.repeat = uint32(in.uint()) //nolint:gosec // it was one
	if in.short {
		return errCondition
	}
	key := event.Key{Namespace: parts[1], Name: parts[2]}
	at, h, known := s.find(parts[0], key)
	switch {
	case at < 0:
		s.gone = append(s.gone, r.Key)
		return nil
	case known != nil:
		return nil
	}
	c.source = uint16(at) //nolint:gosec // of few sources
	c.object = event.Identity(resource(parts[0]), key, string(in.rest))
	s.add(c, h)
	s.counts[c.state]++
	s.resume(c, since, due, now)
	return nil
}

// resume sets when a restored condition is due. Where the wall clock has gone back, so that it began in the future or is due too late, it
// counts from now on.
func (s *Conditions) resume(c *Condition, since, due, now time.Time) {
	at, ago := s.wheel.In(now), now.Round(0).Sub(since)
	c.since = at - max(0, ago)
	if ago < 0 || due.Sub(now.Round(0)) > s.cfg.Every {
		s.note(c)
	}
	switch {
	case c.state == pending:
		if c.since+s.cfg.For <= at {
			c.flags |= late
		}
		s.wheel.Set(&c.Node, c.since+s.cfg.For, c)
	case c.state == skipped || s.cfg.Every == 0:
	default:
		next := at + min(due.Sub(now.Round(0)), s.cfg.Every)
		if due.UnixNano() == 0 { // it was not to be told again
			next = at + s.cfg.Every
		}
		if next <= at {
			c.flags |= late
		}
		s.wheel.Set(&c.Node, next, c)
	}
}

// values takes numbers off a record.
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

func (v *values) take(size int) {
	if size <= 0 {
		v.rest, v.short = nil, true
		return
	}
	v.rest = v.rest[size:]
}

// Description is what there is to say of a condition.
type Description struct {
	Since, Due time.Time // by the wall clock; Due is zero if nothing is to come
	State      string
	Repeat     int
}

// Describe says what there is to say of a condition, as of now.
func (s *Conditions) Describe(c *Condition, now time.Time) Description {
	d := Description{Since: s.wall(c.since, now), State: [...]string{"over", "pending", "told", "skipped", "suppressed"}[c.state], Repeat: int(c.repeat)}
	if c.state == pending || (c.state == told || c.state == suppressed) && s.cfg.Every > 0 {
		d.Due = s.wall(c.At(), now)
	}
	return d
}
