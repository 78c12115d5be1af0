package deltarouter

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"time"
	"unsafe"
)

// The layout of a batch, see docs/ABI.md.
const (
	magic      = 0x31525452 // RTR1
	headerSize = 16
	recordSize = 32
	answerSize = 28
	maxMessage = 4 << 10

	flagInitial     = 1
	flagStale       = 2
	flagRedelivered = 4
	flagLate        = 8
	flagRepeat      = 16

	flagTraced = 1 // of a batch
	flagWith   = 2 // of a batch
)

// The fields of a delta's meta table.
const (
	metaSource = iota
	metaCluster
	metaResource
	metaKind
	metaNamespace
	metaName
	metaUID
	metaResourceVersion
	metaSeen
	metaSince
	metaSuppressed
	metaEventID
	metaEventType
	metaEventSource
	metaEventSubject
	metaEventRoute
	metaEventTime
	metaEventData
)

// The verdicts.
const (
	verdictOK = iota
	verdictRetry
	verdictDrop
	verdictFail
)

// yieldEvery is the number of deltas between two yields. Go's garbage collector runs only while a
// program yields, and the end of an export does not yield. Without yields the memory of a handler
// would grow until it fails.
const yieldEvery = 64

// server handles batches. It reuses its buffers for every batch.
type server struct {
	handle Handler
	logf   func(d Delta, reason any)
	// strings that most deltas share, to avoid allocations; recent are those of the delta before
	names   map[string]string
	recent  [metaKind + 1]string
	calls   uint
	answer  []byte // records
	payload []byte // messages and events
}

// serve handles the batch and returns the answer. The answer is empty if every delta is ok and none
// has events. ok is false if the batch is invalid.
func (s *server) serve(in []byte) (answer []byte, ok bool) {
	le := binary.LittleEndian
	if len(in) < headerSize || le.Uint32(in) != magic {
		return nil, false
	}
	count := int(le.Uint32(in[8:]))
	if count > (len(in)-headerSize)/recordSize {
		return nil, false
	}
	s.answer, s.payload = append(s.answer[:0], 0, 0, 0, 0), s.payload[:0]
	answers := 0
	for i := range count {
		if s.one(uint32(i), s.delta(in, uint32(i))) {
			answers++
		}
		if s.calls++; s.calls%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
	if answers == 0 {
		return nil, true
	}
	return s.finish(answers), true
}

// one handles a delta and reports whether it wrote a record. The offsets in the record are relative
// to payload. finish adjusts them.
func (s *server) one(i uint32, d Delta) bool {
	events, err := s.call(d)
	from, emitted := len(s.payload), len(events)
	if err == nil {
		if err = s.encode(events); err != nil {
			s.payload = s.payload[:from]
		}
	}
	if err == nil && emitted == 0 {
		return false
	}
	var rec [answerSize]byte
	le := binary.LittleEndian
	le.PutUint32(rec[0:], i)
	if err == nil {
		le.PutUint16(rec[6:], uint16(emitted))
		le.PutUint32(rec[20:], uint32(from))
		le.PutUint32(rec[24:], uint32(len(s.payload)-from))
	} else {
		verdict, after, message := judge(err)
		rec[4] = verdict
		le.PutUint32(rec[8:], after)
		le.PutUint32(rec[12:], uint32(from))
		le.PutUint32(rec[16:], uint32(len(message)))
		s.payload = append(s.payload, message...)
	}
	s.answer = append(s.answer, rec[:]...)
	return true
}

// call runs the handler. It turns a panic into an error.
func (s *server) call(d Delta) (events []Event, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.logf(d, r)
			events, err = nil, errPanic
		}
	}()
	return s.handle(d)
}

// errPanic omits the value of the panic, which may contain a part of the object.
var errPanic = errors.New("the handler panicked, see the log")

func (s *server) encode(events []Event) error {
	if len(events) > math.MaxUint16 {
		return errors.New("more than 65535 events for one delta")
	}
	for _, e := range events {
		at := len(s.payload)
		s.payload = append(s.payload, 0, 0, 0, 0)
		var err error
		if s.payload, err = e.append(s.payload); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(s.payload[at:], uint32(len(s.payload)-at-4))
	}
	return nil
}

// finish appends the payload to the records, and adjusts the offsets.
func (s *server) finish(answers int) []byte {
	le := binary.LittleEndian
	le.PutUint32(s.answer, uint32(answers))
	base := uint32(len(s.answer))
	for rec := s.answer[4:]; len(rec) > 0; rec = rec[answerSize:] {
		for _, off := range []int{12, 20} {
			if n := le.Uint32(rec[off+4:]); n > 0 {
				le.PutUint32(rec[off:], le.Uint32(rec[off:])+base)
			}
		}
	}
	s.answer = append(s.answer, s.payload...)
	return s.answer
}

func judge(err error) (verdict byte, after uint32, message string) {
	var retry *retryError
	verdict = verdictFail
	switch {
	case errors.As(err, &retry):
		verdict = verdictRetry
		after = uint32(min(max(retry.after.Milliseconds(), 0), math.MaxUint32))
	case errors.Is(err, ErrDrop):
		verdict = verdictDrop
	}
	message = err.Error()
	return verdict, after, message[:min(len(message), maxMessage)]
}

// delta reads a record. The host guarantees the layout, so an offset out of bounds may panic and
// end the program.
func (s *server) delta(in []byte, i uint32) Delta {
	le := binary.LittleEndian
	rec := in[headerSize+i*recordSize:]
	flags := le.Uint16(rec[10:])
	d := Delta{
		index:       i,
		Op:          Op(rec[8]),
		Object:      piece(in, rec[12:]),
		OldObject:   piece(in, rec[20:]),
		Initial:     flags&flagInitial != 0,
		Stale:       flags&flagStale != 0,
		Redelivered: flags&flagRedelivered != 0,
		Late:        flags&flagLate != 0,
		Repeat:      flags&flagRepeat != 0,
	}
	if len(d.Object) == 0 {
		d.Object = d.OldObject
	}
	meta := in[le.Uint32(rec[28:]):]
	fields := meta[4:][:8*le.Uint32(meta)]
	field := func(i int) []byte {
		if 8*i >= len(fields) {
			return nil // the host is older
		}
		return piece(in, fields[8*i:])
	}
	refs, count := headerSize+le.Uint32(in[8:])*recordSize, le.Uint32(in[8:])
	if le.Uint16(in[6:])&flagTraced != 0 {
		d.TraceParent = string(piece(in, in[refs+8*i:]))
		refs += 8 * count
	}
	if le.Uint16(in[6:])&flagWith != 0 {
		d.With = piece(in, in[refs+8*i:])
	}
	d.Source, d.Cluster = s.name(metaSource, field(metaSource)), s.name(metaCluster, field(metaCluster))
	d.Resource, d.Kind = s.name(metaResource, field(metaResource)), s.name(metaKind, field(metaKind))
	d.identify(field(metaNamespace), field(metaName), field(metaUID), field(metaResourceVersion))
	if seen := field(metaSeen); len(seen) == 8 {
		d.Seen = time.Unix(0, int64(le.Uint64(seen))).UTC()
	}
	if since := field(metaSince); len(since) == 8 {
		d.Since = time.Unix(0, int64(le.Uint64(since))).UTC()
	}
	if n := field(metaSuppressed); len(n) == 8 {
		d.Suppressed = int(le.Uint64(n))
	}
	if at := field(metaEventTime); len(at) == 8 {
		d.Event = &RouteEvent{
			ID: string(field(metaEventID)), Type: s.unique(field(metaEventType)), Source: s.unique(field(metaEventSource)),
			Subject: string(field(metaEventSubject)), Route: s.unique(field(metaEventRoute)),
			Time: time.Unix(0, int64(le.Uint64(at))).UTC(), Data: field(metaEventData),
		}
	}
	return d
}

// identify sets the identity. Its strings share one allocation instead of four. The price: a
// handler that keeps one of them keeps the memory of all, about a hundred bytes.
func (d *Delta) identify(namespace, name, uid, version []byte) {
	all := make([]byte, 0, len(namespace)+len(name)+len(uid)+len(version))
	all = append(append(append(append(all, namespace...), name...), uid...), version...)
	text := unsafe.String(unsafe.SliceData(all), len(all))
	cut := func(n int) (part string) {
		part, text = text[:n], text[n:]
		return part
	}
	d.Namespace, d.Name, d.UID, d.ResourceVersion = cut(len(namespace)), cut(len(name)), cut(len(uid)), cut(len(version))
}

// name returns the same string for equal values of a field.
func (s *server) name(field int, b []byte) string {
	if s.recent[field] != string(b) {
		s.recent[field] = s.unique(b)
	}
	return s.recent[field]
}

func (s *server) unique(b []byte) string {
	if name, ok := s.names[string(b)]; ok {
		return name
	}
	if s.names == nil || len(s.names) >= 1024 {
		s.names = make(map[string]string)
	}
	name := string(b)
	s.names[name] = name
	return name
}

// piece returns the bytes of in at an offset and with a length, or nil for length 0.
func piece(in, ref []byte) []byte {
	off, n := binary.LittleEndian.Uint32(ref), binary.LittleEndian.Uint32(ref[4:])
	if n == 0 {
		return nil
	}
	return in[off:][:n:n]
}

// aligned returns a buffer of n bytes whose address is divisible by 8.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
