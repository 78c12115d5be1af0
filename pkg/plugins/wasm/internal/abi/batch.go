package abi

import (
	"encoding/binary"
	"unsafe"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// The layout of a batch: a header, a record per delta, then what the records refer to by offset and
// length. Offsets count from the start of the batch; everything is little-endian. docs/ABI.md
// has it byte by byte.
const (
	batchMagic  = 0x31525452 // "RTR1"
	HeaderSize  = 16         // bytes of a batch before its first record
	recordSize  = 32
	metaFields  = 9
	eventFields = 7 // behind since and suppressed, of a delta that another route made an event of
	metaSize    = 4 + 8*metaFields
	jsonObjects = 0 // the encoding of objects

	flagInitial     = 1
	flagStale       = 2
	flagRedelivered = 4
	flagLate        = 8
	flagRepeat      = 16
)

// The fields of the meta table that are the same for most deltas of a batch, and come first. They
// are followed by namespace, name, uid, resourceVersion and the time when the delta was seen.
const sharedFields = 4

// Sizer says how many bytes deltas take in a batch at most, one after the other.
type Sizer struct {
	resource *event.Resource
	source   string
}

// metaFieldsOf returns how many fields the meta table of d has. The last ones most deltas do
// without.
func metaFieldsOf(d *event.Delta) int {
	switch {
	case d.Event != nil:
		return metaFields + 2 + eventFields
	case d.Suppressed > 0:
		return metaFields + 2
	case !d.Since.IsZero():
		return metaFields + 1
	}
	return metaFields
}

// Delta returns how many bytes more a batch takes with d.
func (s *Sizer) Delta(d *event.Delta) int {
	o := d.Object()
	n := recordSize + align(metaSize) + 8 + 8
	n += (8 + 8) * (metaFieldsOf(d) - metaFields)
	if r := o.Resource(); r != s.resource || d.Source != s.source {
		s.resource, s.source = r, d.Source
		n += len(d.Source) + len(r.Cluster) + len(r.Group) + len(r.Version) + len(r.Resource) + 2 + len(r.Kind)
	}
	n += len(o.Key().Namespace) + len(o.Key().Name) + len(o.UID()) + len(o.ResourceVersion())
	if e := d.Event; e != nil {
		n += len(e.ID) + len(e.Type) + len(e.Source) + len(e.Subject) + len(e.Route) + len(e.Data)
	}
	if d.New != nil {
		n += len(d.New.JSON()) + 8
	}
	if d.Old != nil {
		n += len(d.Old.JSON()) + 8
	}
	return n
}

// EncodeBatch writes the batch into buf, which has room for it as a sizer says, and returns its
// length. first is the number of the first delta.
func EncodeBatch(buf []byte, batch []*event.Delta, first uint64) int {
	le := binary.LittleEndian
	e := encoder{buf: buf, end: HeaderSize + recordSize*len(batch)}
	for i, d := range batch {
		e.record(buf[HeaderSize+recordSize*i:][:recordSize], d, first+uint64(i))
	}
	le.PutUint32(buf[0:], batchMagic)
	le.PutUint16(buf[4:], Version)
	le.PutUint16(buf[6:], 0) // flags
	le.PutUint32(buf[8:], uint32(len(batch)))
	le.PutUint32(buf[12:], uint32(e.end))
	return e.end
}

// encoder appends to a batch.
type encoder struct {
	buf []byte
	end int

	// The shared fields as they were written last, and where.
	resource *event.Resource
	source   string
	shared   [8 * sharedFields]byte
}

func (e *encoder) record(rec []byte, d *event.Delta, number uint64) {
	le := binary.LittleEndian
	le.PutUint64(rec[0:], number)
	rec[8] = byte(d.Op)
	rec[9] = jsonObjects
	le.PutUint16(rec[10:], deltaFlags(d))
	at := e.object(rec[12:], d.New)
	if old := e.object(rec[20:], d.Old); d.New == nil {
		at = old
	}
	le.PutUint32(rec[28:], uint32(e.meta(d, at)))
}

func deltaFlags(d *event.Delta) (flags uint16) {
	if d.Initial {
		flags |= flagInitial
	}
	if d.Stale {
		flags |= flagStale
	}
	if d.Redelivered {
		flags |= flagRedelivered
	}
	if d.Late {
		flags |= flagLate
	}
	if d.Repeat > 0 {
		flags |= flagRepeat
	}
	return flags
}

// object writes an object, if there is one, and returns its offset.
func (e *encoder) object(ref []byte, o *event.Object) int {
	if o == nil {
		clear(ref[:8])
		return 0
	}
	e.pad()
	at := e.end
	put(e, ref, o.JSON())
	return at
}

// meta writes the meta table of d, whose object is at an offset, and returns its own.
func (e *encoder) meta(d *event.Delta, object int) int {
	o := d.Object()
	e.share(d.Source, o.Resource())
	e.pad()
	at := e.end
	fields := metaFieldsOf(d)
	table := e.buf[at:][:4+8*fields]
	e.end += len(table)
	binary.LittleEndian.PutUint32(table, uint32(fields)) //nolint:gosec // few
	copy(table[4:], e.shared[:])
	rest := table[4+len(e.shared):]
	text, key := o.JSON(), o.Key()
	e.piece(rest[0:], key.Namespace, text, object)
	e.piece(rest[8:], key.Name, text, object)
	e.piece(rest[16:], o.UID(), text, object)
	e.piece(rest[24:], o.ResourceVersion(), text, object)
	e.number(rest[32:], d.Seen.UnixNano())
	if fields == metaFields {
		return at
	}
	if d.Since.IsZero() {
		clear(rest[40:48])
	} else {
		e.number(rest[40:], d.Since.UnixNano())
	}
	switch {
	case d.Suppressed > 0:
		e.number(rest[48:], int64(d.Suppressed))
	case d.Event != nil:
		clear(rest[48:56])
	}
	if d.Event != nil {
		e.event(rest[56:], d.Event)
	}
	return at
}

// event writes what another route made of a delta.
func (e *encoder) event(refs []byte, made *event.Event) {
	for i, text := range []string{made.ID, made.Type, made.Source, made.Subject, made.Route} {
		put(e, refs[8*i:], text)
	}
	e.number(refs[40:], made.Time.UnixNano())
	put(e, refs[48:], made.Data)
}

// number writes a number that ref is to refer to.
func (e *encoder) number(ref []byte, n int64) {
	e.refer(ref, 8)
	binary.LittleEndian.PutUint64(e.buf[e.end:], uint64(n)) //nolint:gosec // its bits
	e.end += 8
}

// share writes the shared fields, unless they are those of the delta before.
func (e *encoder) share(source string, r *event.Resource) {
	if e.source == source && (e.resource == r || e.resource != nil && *e.resource == *r) {
		return
	}
	e.resource, e.source = r, source
	put(e, e.shared[0:], source)
	put(e, e.shared[8:], r.Cluster)
	put(e, e.shared[16:], r.String())
	put(e, e.shared[24:], r.Kind)
}

// piece refers to a piece that is part of a text, as it lies in memory, and the text is at an
// offset. If it is not, it appends the piece.
func (e *encoder) piece(ref []byte, piece string, text []byte, offset int) {
	if at := uintptr(unsafe.Pointer(unsafe.StringData(piece))) - uintptr(unsafe.Pointer(unsafe.SliceData(text))); at < uintptr(len(text)) && at+uintptr(len(piece)) <= uintptr(len(text)) {
		binary.LittleEndian.PutUint64(ref, uint64(len(piece))<<32|uint64(uint32(offset+int(at))))
		return
	}
	put(e, ref, piece)
}

// put appends a piece and refers to it.
func put[T string | []byte](e *encoder, ref []byte, piece T) {
	e.refer(ref, len(piece))
	e.end += copy(e.buf[e.end:], piece)
}

// refer writes where the next piece is, and how long.
func (e *encoder) refer(ref []byte, n int) {
	binary.LittleEndian.PutUint64(ref, uint64(n)<<32|uint64(uint32(e.end)))
}

// pad makes the next piece start at a multiple of 8. The gap is zeroed: what an earlier batch left
// there is nobody's business.
func (e *encoder) pad() {
	binary.LittleEndian.PutUint64(e.buf[e.end:], 0) // something always follows
	e.end = align(e.end)
}

func align(n int) int { return (n + 7) &^ 7 }
