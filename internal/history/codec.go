package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/maphash"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/history/difference"
	"github.com/deltarouter/deltarouter/internal/history/segment"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// A record begins with a byte for its kind. Numbers are varints, texts have their length before
// them. An object has a number in its segment; its first record there defines it. A record of a
// change or decision has the kind, twice the number of the object and 1 if it is defined here, and
// then the definition: source, kind, namespace, name and uid.
//
// A change has then its op, flags, the time since it was seen in microseconds, and the texts that
// the flags name. A decision has its route, op, version, flags, outcome, the times as differences
// to the record's in microseconds, the numbers, the reason and the steps, and then what later
// versions have added, which earlier ones do not read.
//
// A decision that is no end is like others, but with a kind that earlier versions skip. So it
// defines no object: it has the number of one plus 1, or 0 and the texts of a definition.
const (
	kindChange   = 1
	kindDecision = 2
	kindLost     = 3
	kindBegin    = 4
	kindHeld     = 5
)

const (
	flagInitial = 1 << iota
	flagStale
	flagRedelivered
	flagTexts      // the states are recorded
	flagKnown      // the state before is that after the last change of the object
	flagBefore     // the state before, as a whole
	flagAfter      // the state after, as its difference to the one before
	flagMatched    // a decision has the time
	flagTaken      // a decision has the time
	flagSteps      // a decision has steps
	flagReason     // a decision has a reason
	flagSuppressed // a decision has a number of suppressed deltas
	flagRepeat     // a decision has the number of a reminder
	flagRule       // a decision has a rule
	flagUntil      // a decision has the time
	flagLatest     // a decision has the time
	flagInto       // a decision has the version
	flagUndone
)

// maxText bounds the texts of an object, in bytes.
const maxText = segment.MaxRecord / 2

// Keys of records that are not about an object.
const (
	keyBegin = "begin"
	keyLost  = "lost"
)

// keyOf returns the key of the records of an object, also of its namesakes.
func keyOf(source string, key event.Key) uint32 {
	return hashOf("object", source, key.Namespace, key.Name)
}

// keyOfRoute returns the key of the decisions of a route.
func keyOfRoute(route string) uint32 { return hashOf("route", route) }

// hashOf returns the FNV-1a hash of the parts, each with a zero byte behind it.
func hashOf(parts ...string) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint32(part[i])) * prime
		}
		h *= prime
	}
	return h
}

// encoder makes the records of one segment.
type encoder struct {
	objects map[Object]*numbered
	differ  difference.Differ
	record  []byte
}

// numbered is an object of a segment.
type numbered struct {
	number uint64
	// last identifies the state after its last change, by its version and length; the zero value:
	// there is none.
	last stateID
}

// stateID identifies a state of an object. Two states of one version have other fields only if a
// new configuration keeps other fields in the cache: then all are forgotten.
type stateID struct {
	version uint64 // its hash
	size    int
}

var seed = maphash.MakeSeed()

// forget makes the next state of each object a whole one.
func (e *encoder) forget() {
	for _, n := range e.objects {
		n.last = stateID{}
	}
}

func newEncoder() *encoder { return &encoder{objects: make(map[Object]*numbered)} }

// object appends the number of an object, and its definition if it is new.
func (e *encoder) object(o *Object) *numbered {
	n, known := e.objects[*o]
	if known {
		e.record = binary.AppendUvarint(e.record, n.number<<1)
		return n
	}
	// the texts may be parts of the JSON of an object
	own := Object{strings.Clone(o.Source), strings.Clone(o.Kind), event.Key{Namespace: strings.Clone(o.Key.Namespace), Name: strings.Clone(o.Key.Name)}, strings.Clone(o.UID)}
	n = &numbered{number: uint64(len(e.objects))}
	e.objects[own] = n
	e.record = binary.AppendUvarint(e.record, n.number<<1|1)
	e.definition(&own)
	return n
}

func (e *encoder) definition(o *Object) {
	for _, text := range []string{o.Source, o.Kind, o.Key.Namespace, o.Key.Name, o.UID} {
		e.text(text)
	}
}

// mention appends an object without defining it.
func (e *encoder) mention(o *Object) {
	if n, known := e.objects[*o]; known {
		e.record = binary.AppendUvarint(e.record, n.number+1)
		return
	}
	e.record = append(e.record, 0)
	e.definition(o)
}

func (e *encoder) text(text string) {
	e.record = append(binary.AppendUvarint(e.record, uint64(len(text))), text...)
}

func (e *encoder) number(n int) { e.record = binary.AppendUvarint(e.record, uint64(max(0, n))) } //nolint:gosec // not negative

// since appends the time from one moment to another, which may be negative; 0 if the first is not
// known.
func (e *encoder) since(from, to time.Time) {
	span := time.Duration(0)
	if !from.IsZero() {
		span = min(max(to.Sub(from), -maxSpan), maxSpan)
	}
	e.record = binary.AppendVarint(e.record, span.Microseconds())
}

// change returns the record of a change, which is valid until the next call.
func (e *encoder) change(c *Change) []byte {
	e.record = append(e.record[:0], kindChange)
	n := e.object(&c.Object)
	flags := 0
	set := func(flag int, holds bool) {
		if holds {
			flags |= flag
		}
	}
	texts := c.Texts && len(c.Before) <= maxText && len(c.After) <= maxText
	set(flagInitial, c.Initial)
	set(flagStale, c.Stale)
	set(flagTexts, texts)
	if texts {
		known := c.Before != "" && c.was != "" && n.last == stateID{maphash.String(seed, c.was), len(c.Before)}
		set(flagKnown, known)
		set(flagBefore, c.Before != "" && !known)
		set(flagAfter, c.After != "")
		if n.last = (stateID{}); c.After != "" {
			n.last = stateID{maphash.String(seed, c.Version), len(c.After)}
		}
	} else {
		n.last = stateID{}
	}
	e.record = append(e.record, byte(c.Op))
	e.number(flags)
	e.since(c.Seen, c.At)
	e.text(c.Version)
	if flags&flagBefore != 0 {
		e.text(c.Before)
	}
	if flags&flagAfter != 0 {
		e.record = e.differ.Append(e.record, c.Before, c.After)
	}
	return e.record
}

// decision returns the record of a decision, which is valid until the next call.
func (e *encoder) decision(d *Decision) []byte {
	if d.Outcome.IsEnd() {
		e.record = append(e.record[:0], kindDecision)
		e.object(&d.Object)
	} else {
		e.record = append(e.record[:0], kindHeld)
		e.mention(&d.Object)
	}
	flags := 0
	set := func(flag int, holds bool) {
		if holds {
			flags |= flag
		}
	}
	set(flagInitial, d.Initial)
	set(flagStale, d.Stale)
	set(flagRedelivered, d.Redelivered)
	set(flagMatched, !d.Matched.IsZero())
	set(flagTaken, !d.Taken.IsZero())
	set(flagSteps, len(d.Steps) > 0 || d.Skipped > 0)
	set(flagReason, d.Reason != "")
	set(flagSuppressed, d.Suppressed > 0)
	set(flagRepeat, d.Repeat > 0)
	set(flagRule, d.Rule != "")
	set(flagUntil, !d.Until.IsZero())
	set(flagLatest, !d.Latest.IsZero())
	set(flagInto, d.Into != "")
	set(flagUndone, d.Undone)
	e.text(d.Route)
	e.record = append(e.record, byte(d.Op), byte(d.Outcome))
	e.text(d.Version)
	e.number(flags)
	e.since(d.Seen, d.At)
	if flags&flagMatched != 0 {
		e.since(d.Matched, d.At)
	}
	if flags&flagTaken != 0 {
		e.since(d.Taken, d.At)
	}
	e.number(d.Events)
	if flags&flagSuppressed != 0 {
		e.number(d.Suppressed)
	}
	if flags&flagReason != 0 {
		e.text(d.Reason)
	}
	if flags&flagSteps != 0 {
		e.steps(d)
	}
	if flags&flagRepeat != 0 {
		e.number(d.Repeat)
	}
	if flags&flagRule != 0 {
		e.text(d.Rule)
	}
	if flags&flagUntil != 0 {
		e.since(d.Until, d.At)
	}
	if flags&flagLatest != 0 {
		e.since(d.Latest, d.At)
	}
	if flags&flagInto != 0 {
		e.text(d.Into)
	}
	return e.record
}

func (e *encoder) steps(d *Decision) {
	e.number(d.Skipped)
	e.number(len(d.Steps))
	for i := range d.Steps {
		s := &d.Steps[i]
		e.record = append(e.record, byte(s.Kind))
		e.text(s.Name)
		e.since(s.At, d.At)
		e.number(int(s.Took.Microseconds()))
		e.number(s.Size)
		e.text(s.Err)
	}
}

func (e *encoder) lost(l *Lost) []byte {
	e.record = append(e.record[:0], kindLost)
	e.number(l.Number)
	e.text(l.Reason)
	return e.record
}

// begin forgets the states, because the cache may keep other fields from then on.
func (e *encoder) begin(b *Begin) []byte {
	e.forget()
	text, err := json.Marshal(b)
	if err != nil {
		return nil // its fields can be marshalled
	}
	e.record = append(append(e.record[:0], kindBegin), text...)
	return e.record
}

// errRecord reports a record that no encoder makes.
var errRecord = errors.New("a record of the history is damaged")

// decoder reads the records of one segment. It is used with all records of the objects that it is
// asked for, in their order.
type decoder struct {
	objects   map[uint64]*known
	stateless bool // skip the states
	rest      []byte
	failed    bool
}

// known is an object of a segment, and the state after its last change.
type known struct {
	Object

	last string
}

func newDecoder() *decoder { return &decoder{objects: make(map[uint64]*known)} }

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) number() int {
	n := d.uvarint()
	if n > 1<<40 {
		d.failed = true
		return 0
	}
	return int(n)
}

// maxSpan bounds the differences of times.
const maxSpan = 100 * 365 * 24 * time.Hour

// before returns the time before another one by the next number.
func (d *decoder) before(at time.Time) time.Time {
	n, size := binary.Varint(d.rest)
	if size <= 0 || n > maxSpan.Microseconds() || n < -maxSpan.Microseconds() {
		d.failed, d.rest = true, nil
		return at
	}
	d.rest = d.rest[size:]
	return at.Add(-time.Duration(n) * time.Microsecond)
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.failed, d.rest = true, nil
		return ""
	}
	text := string(d.rest[:n])
	d.rest = d.rest[n:]
	return text
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.failed = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// object returns the object of the record; nil: the decoder has not read its definition.
func (d *decoder) object() *known {
	n := d.uvarint()
	if n&1 == 0 {
		return d.objects[n>>1]
	}
	o := &known{Object: d.definition()}
	if !d.failed {
		d.objects[n>>1] = o
	}
	return o
}

func (d *decoder) definition() Object {
	return Object{Source: d.text(), Kind: d.text(), Key: event.Key{Namespace: d.text(), Name: d.text()}, UID: d.text()}
}

// mentioned returns the object of a record that does not define it; nil: the decoder has not read
// the definition.
func (d *decoder) mentioned() *known {
	n := d.uvarint()
	if n == 0 {
		return &known{Object: d.definition()}
	}
	return d.objects[n-1]
}

// decode returns a *Change, *Decision, *Lost or *Begin. A record about an object whose definition
// was not read, because nothing asked for it, is nil.
func (d *decoder) decode(r segment.Record) (record any, err error) {
	if len(r.Data) == 0 {
		return nil, errRecord
	}
	d.rest, d.failed = r.Data[1:], false
	switch r.Data[0] {
	case kindChange:
		record = d.change(r.At)
	case kindDecision:
		record = d.decision(d.object(), r.At)
	case kindHeld:
		record = d.decision(d.mentioned(), r.At)
	case kindLost:
		record = &Lost{At: r.At, Number: d.number(), Reason: d.text()}
	case kindBegin:
		b := &Begin{}
		if err := json.Unmarshal(d.rest, b); err != nil {
			return nil, errRecord
		}
		b.At, d.rest, record = r.At, nil, b
	default: // of a later version
		return nil, nil
	}
	if d.failed {
		return nil, errRecord
	}
	return record, nil
}

func (d *decoder) change(at time.Time) any {
	o := d.object()
	if o == nil {
		return nil
	}
	c := &Change{Object: o.Object, At: at, Op: event.Op(d.byte())}
	flags := d.number()
	c.Initial, c.Stale, c.Texts = flags&flagInitial != 0, flags&flagStale != 0, flags&flagTexts != 0
	c.Seen, c.Version = d.before(at), d.text()
	if d.stateless {
		return c
	}
	if flags&flagKnown != 0 {
		c.Before = o.last
	}
	if flags&flagBefore != 0 {
		c.Before = d.text()
	}
	if flags&flagAfter != 0 && !d.failed {
		after, err := difference.Apply(c.Before, d.rest, maxText)
		if d.rest = nil; err != nil {
			d.failed = true
		}
		c.After = after
	}
	o.last = c.After
	return c
}

func (d *decoder) decision(o *known, at time.Time) any {
	if o == nil {
		return nil
	}
	c := &Decision{Object: o.Object, At: at, Route: d.text(), Op: event.Op(d.byte()), Outcome: Outcome(d.byte()), Version: d.text()}
	flags := d.number()
	c.Initial, c.Stale, c.Redelivered = flags&flagInitial != 0, flags&flagStale != 0, flags&flagRedelivered != 0
	c.Seen = d.before(at)
	if flags&flagMatched != 0 {
		c.Matched = d.before(at)
	}
	if flags&flagTaken != 0 {
		c.Taken = d.before(at)
	}
	c.Events = d.number()
	if flags&flagSuppressed != 0 {
		c.Suppressed = d.number()
	}
	if flags&flagReason != 0 {
		c.Reason = d.text()
	}
	if flags&flagSteps != 0 {
		d.steps(c)
	}
	if flags&flagRepeat != 0 {
		c.Repeat = d.number()
	}
	if flags&flagRule != 0 {
		c.Rule = d.text()
	}
	if flags&flagUntil != 0 {
		c.Until = d.before(at)
	}
	if flags&flagLatest != 0 {
		c.Latest = d.before(at)
	}
	if flags&flagInto != 0 {
		c.Into = d.text()
	}
	c.Undone = flags&flagUndone != 0
	return c
}

func (d *decoder) steps(c *Decision) {
	c.Skipped = d.number()
	n := d.number()
	for i := 0; i < n && !d.failed; i++ {
		s := Step{Kind: StepKind(d.byte()), Name: d.text(), At: d.before(c.At), Took: time.Duration(d.number()) * time.Microsecond, Size: d.number(), Err: d.text()}
		c.Steps = append(c.Steps, s)
	}
}
