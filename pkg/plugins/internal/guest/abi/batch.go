package abi

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// The layout of a batch: a header, one record per delta, with flagTraced one reference per delta to
// its traceparent, with flagWith another one to its values of with, then the data to which these
// refer by offset and length. Offsets count from the start of the batch. All numbers are
// little-endian. docs/ABI.md specifies each byte.
const (
	batchMagic  = 0x31525452 // "RTR1"
	HeaderSize  = 16         // the size of a batch before its first record
	recordSize  = 32
	metaFields  = 9
	eventFields = 7 // after since and suppressed, for a delta with an upstream event
	metaSize    = 4 + 8*metaFields
	jsonObjects = 0 // the encoding of objects

	flagInitial     = 1
	flagStale       = 2
	flagRedelivered = 4
	flagLate        = 8
	flagRepeat      = 16

	flagTraced = 1 // of a batch
	flagWith   = 2 // of a batch
	refSize    = 8
)

// sharedFields is the number of the first fields of the meta table, which are the same for most
// deltas of a batch. The fields namespace, name, uid, resourceVersion and the time of the delta
// follow.
const sharedFields = 4

// Sizer computes the maximum size of deltas in a batch, one after the other.
type Sizer struct {
	resource *event.Resource
	source   string
}

// metaFieldsOf returns the number of fields in the meta table of d. Most deltas omit the last ones.
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

// Delta returns the maximum number of bytes that d adds to a batch.
func (s *Sizer) Delta(d *event.Delta) int {
	o := d.Object()
	n := recordSize + align(metaSize) + 8 + 8
	n += (8 + 8) * (metaFieldsOf(d) - metaFields)
	if r := o.Resource(); r != s.resource || d.Source != s.source {
		s.resource, s.source = r, d.Source
		n += len(d.Source) + len(r.Cluster) + len(r.Group) + len(r.Version) + len(r.Resource) + 2 + len(r.Kind)
	}
	n += len(o.Key().Namespace) + len(o.Key().Name) + len(o.UID()) + len(o.ResourceVersion())
	if d.TraceParent != "" {
		n += refSize + len(d.TraceParent)
	}
	n += refSize + len(d.With)
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

// EncodeBatch encodes the batch into buf, which has the size that a Sizer returned, and returns its
// length. first is the number of the first delta.
func EncodeBatch(buf []byte, batch []*event.Delta, first uint64) int {
	le := binary.LittleEndian
	e := encoder{buf: buf, end: HeaderSize + recordSize*len(batch)}
	refs, flags := e.end, uint16(0)
	if isTraced(batch) {
		flags = flagTraced
		e.end += refSize * len(batch)
	}
	with := e.end
	if hasWith(batch) {
		flags |= flagWith
		e.end += refSize * len(batch)
	}
	for i, d := range batch {
		if flags&flagTraced != 0 {
			put(&e, buf[refs+refSize*i:], d.TraceParent)
		}
		if flags&flagWith != 0 {
			put(&e, buf[with+refSize*i:], d.With)
		}
	}
	for i, d := range batch {
		e.record(buf[HeaderSize+recordSize*i:][:recordSize], d, first+uint64(i))
	}
	le.PutUint32(buf[0:], batchMagic)
	le.PutUint16(buf[4:], Version)
	le.PutUint16(buf[6:], flags)
	le.PutUint32(buf[8:], uint32(len(batch)))
	le.PutUint32(buf[12:], uint32(e.end))
	return e.end
}

// isTraced reports whether all deltas of a batch have a traceparent. A reload turns tracing on or
// off between two deltas; a mixed batch has none.
func isTraced(batch []*event.Delta) bool {
	for _, d := range batch {
		if d.TraceParent == "" {
			return false
		}
	}
	return len(batch) > 0
}

// hasWith reports whether the route has `with`.
func hasWith(batch []*event.Delta) bool {
	return slices.ContainsFunc(batch, func(d *event.Delta) bool { return len(d.With) > 0 })
}

// encoder appends to a batch.
type encoder struct {
	buf []byte
	end int

	// The shared fields that were written last, and their offsets.
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

// meta writes the meta table of d, whose object is at an offset, and returns the offset of the
// table.
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

// event writes the event of an upstream route.
func (e *encoder) event(refs []byte, made *event.Event) {
	for i, text := range []string{made.ID, made.Type, made.Source, made.Subject, made.Route} {
		put(e, refs[8*i:], text)
	}
	e.number(refs[40:], made.Time.UnixNano())
	put(e, refs[48:], made.Data)
}

// number writes a number and the reference to it.
func (e *encoder) number(ref []byte, n int64) {
	e.refer(ref, 8)
	binary.LittleEndian.PutUint64(e.buf[e.end:], uint64(n)) //nolint:gosec // its bits
	e.end += 8
}

// share writes the shared fields, unless they equal those of the previous delta.
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

// piece writes a reference to piece. If piece shares the memory of text, which was written at an
// offset, it refers to that. Otherwise it appends piece.
func (e *encoder) piece(ref []byte, piece string, text []byte, offset int) {
	if at := uintptr(unsafe.Pointer(unsafe.StringData(piece))) - uintptr(unsafe.Pointer(unsafe.SliceData(text))); at < uintptr(len(text)) && at+uintptr(len(piece)) <= uintptr(len(text)) {
		binary.LittleEndian.PutUint64(ref, uint64(len(piece))<<32|uint64(uint32(offset+int(at))))
		return
	}
	put(e, ref, piece)
}

// put appends piece and writes a reference to it.
func put[T string | []byte](e *encoder, ref []byte, piece T) {
	e.refer(ref, len(piece))
	e.end += copy(e.buf[e.end:], piece)
}

// refer writes the offset and the length of the next n bytes.
func (e *encoder) refer(ref []byte, n int) {
	binary.LittleEndian.PutUint64(ref, uint64(n)<<32|uint64(uint32(e.end)))
}

// pad aligns the next piece to a multiple of 8. It zeroes the gap, which may contain data of an
// earlier batch.
func (e *encoder) pad() {
	binary.LittleEndian.PutUint64(e.buf[e.end:], 0) // more data always follows
	e.end = align(e.end)
}

func align(n int) int { return (n + 7) &^ 7 }
