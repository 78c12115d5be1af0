package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The payloads. Strings and texts are preceded by their length as a varint.

// fields builds a payload from fields.
type fields []byte

func (f *fields) uint(v uint64)   { *f = binary.AppendUvarint(*f, v) }
func (f *fields) text(v string)   { f.uint(uint64(len(v))); *f = append(*f, v...) }
func (f *fields) bytes(v []byte)  { f.uint(uint64(len(v))); *f = append(*f, v...) }
func (f *fields) flags(v ...bool) { f.uint(bits(v)) }

func bits(flags []bool) (set uint64) {
	for i, flag := range flags {
		if flag {
			set |= 1 << i
		}
	}
	return set
}

// reader reads the fields of a payload. After the first mistake it returns zero values and keeps
// the error.
type reader struct {
	rest  []byte
	owned bool // the texts share the memory of the payload
	err   error
}

func (r *reader) fail() { r.rest, r.err = nil, statefile.Corruptf("a record is truncated") }

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string {
	b := r.bytes()
	if r.owned {
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	return string(b)
}

// done returns the error, or one if bytes are left.
func (r *reader) done() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = statefile.Corruptf("a record is too long")
	}
	return r.err
}

// watchState is the record "state" in the bucket of a watch.
type watchState struct {
	applied   string
	relisting bool
}

func (s watchState) payload() []byte {
	var f fields
	f.flags(s.relisting)
	f.text(s.applied)
	return f
}

func parseWatchState(payload []byte) (watchState, error) {
	r := reader{rest: payload}
	s := watchState{relisting: r.uint()&1 != 0}
	s.applied = r.text()
	return s, r.done()
}

// An object's payload is a byte (1: identity only) and its JSON.
func objectPayload(o *event.Object, bareOnly bool) []byte {
	if bareOnly || secret(o) {
		return append([]byte{1}, bare(o)...)
	}
	return append([]byte{0}, o.JSON()...)
}

// parseObject takes ownership of the payload, which must not be modified afterwards.
func parseObject(payload []byte) (Object, error) {
	if len(payload) < 2 || payload[0] > 1 {
		return Object{}, statefile.Corruptf("an object has no text")
	}
	return Object{JSON: unsafe.String(&payload[1], len(payload)-1), Bare: payload[0] == 1}, nil
}

// secret reports whether only the identity of the object may reach the disk.
func secret(o *event.Object) bool {
	r := o.Resource()
	return r == nil || r.Group == "" && r.Resource == "secrets"
}

// bare returns the identity of the object as JSON text.
func bare(o *event.Object) []byte {
	id := rawjson.Identity{Name: o.Key().Name, Namespace: o.Key().Namespace, UID: o.UID(), ResourceVersion: o.ResourceVersion()}
	if r := o.Resource(); r != nil {
		id.APIVersion, id.Kind = r.GroupVersion().String(), r.Kind
	}
	return []byte(id.JSON())
}

// payload returns the payload of a pending delta. The resource is kept too, for a source that is no
// longer configured when it is read.
func (o *Pending) payload() []byte { return o.appendTo(nil) }

// appendTo appends the payload of a pending delta.
func (o *Pending) appendTo(f fields) []byte {
	d := o.Delta
	f.uint(uint64(max(o.Attempts, 0)))
	f.flags(d.Initial, d.Stale, d.Redelivered, d.Old != nil, d.New != nil, !d.Seen.IsZero(), transit.Of(d).Selective)
	f.text(d.Op.String())
	f.text(d.Source)
	if !d.Seen.IsZero() {
		f.uint(uint64(d.Seen.UnixNano()))
	}
	closed := o.Closed
	if more := o.more(); more != "" {
		closed = append(closed[:len(closed):len(closed)], more)
	}
	f.uint(uint64(len(closed)))
	for _, sink := range closed {
		f.text(sink)
	}
	var r event.Resource
	if about := d.Object(); about != nil && about.Resource() != nil {
		r = *about.Resource()
	}
	for _, part := range []string{r.Group, r.Version, r.Resource, r.Cluster, r.Kind} {
		f.text(part)
	}
	for _, object := range []*event.Object{d.Old, d.New} {
		if object != nil {
			f.bytes(stored(object))
		}
	}
	return f
}

// EncodeDelta encodes a delta like a pending one, for a record of a rule: of a Secret only its
// identity.
func EncodeDelta(d *event.Delta) []byte { return AppendDelta(nil, d) }

// AppendDelta appends the result of [EncodeDelta].
func AppendDelta(b []byte, d *event.Delta) []byte { return (&Pending{Delta: d}).appendTo(b) }

// DecodeDelta decodes the result of [EncodeDelta]. resource returns the resource of a source: the
// second argument is the saved one.
func DecodeDelta(payload []byte, resource func(source string, saved event.Resource) *event.Resource) (*event.Delta, error) {
	pending, err := parsePending(0, payload, resource)
	return pending.Delta, err
}

// TakeDelta is DecodeDelta for a payload that is not used afterwards: the delta and the saved
// resource share its memory.
func TakeDelta(payload []byte, resource func(source string, saved event.Resource) *event.Resource) (*event.Delta, error) {
	pending, err := (&reader{rest: payload, owned: true}).pending(0, resource)
	return pending.Delta, err
}

func stored(o *event.Object) []byte {
	if secret(o) {
		return bare(o)
	}
	return o.JSON()
}

// parsePending decodes a pending delta. resource returns the resource of a source: the second
// argument is the saved one.
func parsePending(id uint64, payload []byte, resource func(source string, saved event.Resource) *event.Resource) (Pending, error) {
	return (&reader{rest: payload}).pending(id, resource)
}

func (r *reader) pending(id uint64, resource func(source string, saved event.Resource) *event.Resource) (Pending, error) {
	pending := Pending{ID: id, Delta: &event.Delta{}}
	d := pending.Delta
	pending.Attempts = int(min(r.uint(), math.MaxInt32))
	flags := r.uint()
	d.Initial, d.Stale, d.Redelivered = flags&1 != 0, flags&2 != 0, flags&4 != 0
	transit.Of(d).Selective = flags&64 != 0 // older versions neither write nor read it
	op := r.text()
	d.Source = r.text()
	if flags&32 != 0 {
		d.Seen = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	}
	for n := r.uint(); n > 0 && r.err == nil; n-- {
		if sink := r.text(); !strings.HasPrefix(sink, moreMark) {
			pending.Closed = append(pending.Closed, sink)
		} else if err := pending.parseMore(sink[len(moreMark):]); err != nil {
			return Pending{}, err
		}
	}
	var saved event.Resource
	saved.GroupVersionResource = schema.GroupVersionResource{Group: r.text(), Version: r.text(), Resource: r.text()}
	saved.Cluster, saved.Kind = r.text(), r.text()
	var old, now string
	if flags&8 != 0 {
		old = r.text()
	}
	if flags&16 != 0 {
		now = r.text()
	}
	if err := r.done(); err != nil {
		return Pending{}, err
	}
	known := false
	if d.Op, known = event.ParseOp(op); !known || flags&(8|16) == 0 {
		return Pending{}, statefile.Corruptf("a delta without an op or an object")
	}
	if err := checkStates(old, now, flags&8 != 0, flags&16 != 0); err != nil {
		return Pending{}, err
	}
	var err error
	about := resource(d.Source, saved)
	if flags&8 != 0 {
		d.Old, err = restore(about, old)
	}
	if flags&16 != 0 && err == nil {
		d.New, err = restore(about, now)
	}
	return pending, err
}

// checkStates checks the texts of the states that a delta has: ParseObject relies on it.
func checkStates(old, now string, hasOld, hasNew bool) (err error) {
	switch {
	case hasOld && hasNew:
		err = rawjson.CheckBoth(now, old)
	case hasOld:
		err = rawjson.Check(old)
	default:
		err = rawjson.Check(now)
	}
	if err != nil {
		return statefile.Corruptf("an object is not JSON")
	}
	return nil
}

func restore(resource *event.Resource, src string) (*event.Object, error) {
	o, err := event.ParseObject(resource, src)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return o, nil
}

// withheld stands for the data of an event about a Secret.
const withheld = "null"

// eventPayload encodes the event that an upstream route made of a pending delta. An event that a
// handler made of a Secret may contain any of its data, so only the parts that do not depend on the
// handler are kept.
func eventPayload(d *event.Delta) (f fields) {
	e := *d.Event
	if !Whole(d) {
		e.Type, e.Subject, e.Data = event.TypePrefix+d.Op.String(), d.Key().String(), []byte(withheld)
	}
	f.flags(e.Redelivered, !e.Time.IsZero())
	if !e.Time.IsZero() {
		f.uint(uint64(e.Time.UnixNano())) //nolint:gosec // read back as it was
	}
	for _, text := range []string{e.ID, e.Type, e.Source, e.Subject, e.Route, e.K8sUID, e.K8sResourceVersion} {
		f.text(text)
	}
	f.bytes(e.Data)
	return f
}

func (o *Pending) parseEvent(r *reader) error {
	e := &event.Event{}
	flags := r.uint()
	e.Redelivered = flags&1 != 0
	if flags&2 != 0 {
		e.Time = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	}
	for _, text := range []*string{&e.ID, &e.Type, &e.Source, &e.Subject, &e.Route, &e.K8sUID, &e.K8sResourceVersion} {
		*text = r.text()
	}
	e.Data = r.bytes()
	if r.err == nil && len(e.Data) > 0 && !json.Valid(e.Data) {
		return statefile.Corruptf("the data of an event is not JSON")
	}
	o.Delta.Event = e
	return nil // the caller notices truncated data
}

// payload returns the payload of a dead letter: its fields, and the delta like a pending one.
func (l *Letter) payload() []byte {
	var f fields
	f.flags(l.Unseen)
	f.uint(uint64(l.Time.UnixNano())) //nolint:gosec // read back as it was
	f.text(l.Route)
	f.text(l.Sink)
	f.text(l.Error)
	pending := Pending{Delta: l.Delta, Attempts: l.Attempts, call: l.Call}
	f.bytes(pending.payload())
	return f
}

func parseLetter(key, payload []byte) (Letter, error) {
	if len(key) != 8 {
		return Letter{}, statefile.Corruptf("a dead letter's number has %d bytes", len(key))
	}
	r := reader{rest: payload}
	l := Letter{ID: binary.BigEndian.Uint64(key), Unseen: r.uint()&1 != 0}
	l.Time = time.Unix(0, int64(r.uint())) //nolint:gosec // it was one
	l.Route, l.Sink, l.Error = r.text(), r.text(), r.text()
	delta := r.bytes()
	if err := r.done(); err != nil {
		return l, err
	}
	var saved *event.Resource
	pending, err := parsePending(l.ID, delta, func(_ string, resource event.Resource) *event.Resource {
		if saved == nil {
			saved = &resource
		}
		return saved
	})
	l.Delta, l.Attempts, l.Call = pending.Delta, pending.Attempts, pending.call
	return l, err
}

// EncodeLetter encodes a dead letter without its ID. Of a Secret it has only the identity.
func EncodeLetter(l *Letter) []byte { return l.payload() }

// DecodeLetter decodes the result of [EncodeLetter].
func DecodeLetter(payload []byte) (Letter, error) { return parseLetter(make([]byte, 8), payload) }

// lettersState encodes the record "state" of the dead letters. Without a source it is the one of
// older versions.
func lettersState(last uint64, source LettersSource) (f fields) {
	f.uint(last)
	if source != (LettersSource{}) {
		f.uint(uint64(source.Stream)) //nolint:gosec // read back as it was
		f.uint(source.Seq)
	}
	return f
}

func parseLettersState(payload []byte) (last uint64, source LettersSource, err error) {
	r := reader{rest: payload}
	last = r.uint()
	if len(r.rest) > 0 {
		source.Stream = int64(r.uint()) //nolint:gosec // it was one
		source.Seq = r.uint()
	}
	return last, source, r.done()
}
