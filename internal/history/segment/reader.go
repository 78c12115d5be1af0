package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// ErrDamaged reports a segment whose content is not as it was written. The frames before are
// intact.
var ErrDamaged = errors.New("the segment is damaged")

// Reader reads a segment, also one that is being written. It is not safe for concurrent use.
type Reader struct {
	file  *os.File
	codec *zstd.Decoder
	index *stored // nil: see find

	body, raw []byte // of the last frame
}

// Record is a record of a segment.
type Record struct {
	At   time.Time // to the microsecond
	Keys []uint32  // valid until the next record
	Data []byte    // valid until the next frame is read
}

// Open opens a segment. The error wraps [ErrDamaged] if it is none.
func Open(path string) (*Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != magic {
		return nil, errors.Join(fmt.Errorf("%w: it does not begin like one", ErrDamaged), file.Close())
	}
	codec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxFrame))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := &Reader{file: file, codec: codec}
	if x, err := readIndex(path); err == nil {
		r.index = x
	}
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error {
	r.codec.Close()
	return r.file.Close()
}

// Indexed reports whether the segment has an intact index.
func (r *Reader) Indexed() bool { return r.index != nil }

// Frames returns all frames. Without an index it reads the headers of the frames, and the error is
// [ErrDamaged] if one of them is damaged; the result then has those before.
func (r *Reader) Frames() (frames []Frame, err error) {
	if r.index != nil {
		return slices.Clone(r.index.frames), nil
	}
	header := make([]byte, headerBytes)
	info, err := r.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	for offset := int64(len(magic)); offset+headerBytes <= info.Size(); {
		if _, err := r.file.ReadAt(header, offset); err != nil {
			return frames, fmt.Errorf("history: %w", fileerr.Explain(err))
		}
		f, length, _ := parseHeader(header, offset)
		next := offset + headerBytes + length
		if length > maxFrame {
			return frames, ErrDamaged
		}
		if next > info.Size() {
			return frames, nil // the write has not ended
		}
		frames, offset = append(frames, f), next
	}
	return frames, nil
}

func parseHeader(b []byte, offset int64) (f Frame, length, raw int64) {
	n := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) } //nolint:gosec // as written
	return Frame{offset, n(8), n(16)}, int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:]))
}

// Of returns the frames that may have a record of a key; without an index all.
func (r *Reader) Of(key uint32) ([]Frame, error) {
	if r.index != nil {
		return r.index.of(key), nil
	}
	return r.Frames()
}

// Read calls take with each record of a frame, until it returns false. The error wraps
// [ErrDamaged].
func (r *Reader) Read(f Frame, take func(Record) bool) error {
	header := make([]byte, headerBytes)
	if _, err := r.file.ReadAt(header, f.Offset); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, fileerr.Explain(err))
	}
	now, length, size := parseHeader(header, f.Offset)
	if length > maxFrame || size > maxFrame || now != f {
		return ErrDamaged
	}
	r.body = slices.Grow(append(r.body[:0], header...), int(length))[:headerBytes+length]
	if _, err := r.file.ReadAt(r.body[headerBytes:], f.Offset+headerBytes); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, fileerr.Explain(err))
	}
	if sumOf(r.body) != binary.LittleEndian.Uint32(header[headerBytes-4:]) {
		return ErrDamaged
	}
	var err error
	if r.raw, err = r.codec.DecodeAll(r.body[headerBytes:], r.raw[:0]); err != nil || int64(len(r.raw)) != size {
		return ErrDamaged
	}
	return records(r.raw, f.Begin, take)
}

// records calls take with each record of an unpacked body.
func records(rest []byte, begin int64, take func(Record) bool) error {
	var keys []uint32
	for at := begin; len(rest) > 0; {
		var n [3]uint64 // microseconds, keys, length
		for i := range n {
			var size int
			if n[i], size = binary.Uvarint(rest); size <= 0 {
				return ErrDamaged
			}
			rest = rest[size:]
		}
		if n[0] > 1<<60 || n[1] > uint64(len(rest))/4 || n[2] > uint64(len(rest))-4*n[1] {
			return ErrDamaged
		}
		at, keys = at+int64(n[0]), keys[:0] //nolint:gosec // bounded above
		for range n[1] {
			keys, rest = append(keys, binary.LittleEndian.Uint32(rest)), rest[4:]
		}
		if !take(Record{time.UnixMicro(at), keys, rest[:n[2]:n[2]]}) {
			return nil
		}
		rest = rest[n[2]:]
	}
	return nil
}

// Index makes the index of a segment that was not sealed, up to its first damaged frame. lost
// reports that there is one.
func Index(path string) (lost bool, err error) {
	r, err := Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	r.index = nil // one that is there may be of another content
	frames, err := r.Frames()
	if err != nil && !errors.Is(err, ErrDamaged) {
		return false, err
	}
	lost = err != nil
	x := index{postings: make(map[uint32][]uint32)}
	for _, f := range frames {
		var keys []uint32
		if err := r.Read(f, func(record Record) bool { keys = append(keys, record.Keys...); return true }); err != nil {
			lost = true
			break
		}
		x.add(f, keys)
	}
	return lost, x.write(path)
}
