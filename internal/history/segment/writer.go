package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

const (
	magic = "deltarouter history 1\n"
	// headerBytes is the size of the header of a frame.
	headerBytes = 4 + 4 + 8 + 8 + 4
	// MaxRecord is the size of the largest record.
	MaxRecord = 64 << 20
	// frameBytes is the size of the unpacked body from which a frame is complete. A query unpacks
	// whole frames.
	frameBytes = 64 << 10
	// maxFrame bounds the unpacked body of a frame that is read.
	maxFrame = MaxRecord + frameBytes + 1<<20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Writer writes one segment. It is not safe for concurrent use.
type Writer struct {
	path  string
	file  *os.File
	size  int64
	codec *zstd.Encoder
	index index

	// the frame that is being filled
	raw        []byte
	keys       []uint32
	records    int
	begin, end int64
	frame      []byte // the memory of the last frame

	lost int // records of frames that could not be written
}

// Create creates a segment. The file must not exist.
func Create(path string) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	if _, err := file.WriteString(magic); err != nil {
		return nil, errors.Join(fmt.Errorf("history: %w", fileerr.Explain(err)), file.Close(), os.Remove(path))
	}
	codec, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithWindowSize(128<<10))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Writer{path: path, file: file, size: int64(len(magic)), codec: codec, index: index{postings: make(map[uint32][]uint32)}}, nil
}

// Add adds a record to the present frame. Its time is at least that of the record before; an
// earlier one counts as equal. After an error of the write the segment has to be sealed.
func (w *Writer) Add(at time.Time, record []byte, keys ...uint32) error {
	now := max(at.UnixMicro(), w.end)
	if len(w.raw) == 0 {
		w.begin, w.end = now, now
	}
	since := now - w.end
	w.end = now
	w.raw = binary.AppendUvarint(w.raw, uint64(since)) //nolint:gosec // not negative
	w.raw = binary.AppendUvarint(w.raw, uint64(len(keys)))
	w.raw = binary.AppendUvarint(w.raw, uint64(len(record)))
	for _, key := range keys {
		w.raw = binary.LittleEndian.AppendUint32(w.raw, key)
	}
	w.raw = append(w.raw, record...)
	w.keys, w.records = append(w.keys, keys...), w.records+1
	if len(w.raw) >= frameBytes {
		return w.Flush()
	}
	return nil
}

// Flush writes the present frame. Its records then survive the end of the process.
func (w *Writer) Flush() error {
	if len(w.raw) == 0 {
		return nil
	}
	b := append(w.frame[:0], make([]byte, headerBytes)...)
	b = w.codec.EncodeAll(w.raw, b)
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)-headerBytes)) //nolint:gosec // see MaxRecord
	binary.LittleEndian.PutUint32(b[4:], uint32(len(w.raw)))         //nolint:gosec // see MaxRecord
	binary.LittleEndian.PutUint64(b[8:], uint64(w.begin))            //nolint:gosec // read as int64
	binary.LittleEndian.PutUint64(b[16:], uint64(w.end))             //nolint:gosec // read as int64
	binary.LittleEndian.PutUint32(b[24:], sumOf(b))
	if w.frame = b; cap(b) > 4*frameBytes {
		w.frame = nil // one large record
	}
	_, err := w.file.Write(b)
	if err == nil {
		w.index.add(Frame{w.size, w.begin, w.end}, w.keys)
		w.size += int64(len(b))
	}
	records := w.records
	if w.raw, w.keys, w.records = w.raw[:0], w.keys[:0], 0; cap(w.raw) > 4*frameBytes {
		w.raw = nil
	}
	if err != nil {
		w.lost += records
		return fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	return nil
}

// sumOf returns the checksum of a frame, without the place of the checksum.
func sumOf(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:headerBytes-4], castagnoli), castagnoli, frame[headerBytes:])
}

// Size returns the size of the file in bytes.
func (w *Writer) Size() int64 { return w.size }

// End returns the time of the last record.
func (w *Writer) End() time.Time { return time.UnixMicro(w.end) }

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Frames returns the frames that have been written, in their order.
func (w *Writer) Frames() []Frame { return slices.Clone(w.index.frames) }

// Of returns the written frames with a record of a key.
func (w *Writer) Of(key uint32) []Frame { return w.index.of(key) }

// Lost returns the number of records that could not be written.
func (w *Writer) Lost() int { return w.lost }

// Discard closes and removes a segment.
func (w *Writer) Discard() error {
	return errors.Join(w.file.Close(), w.codec.Close(), os.Remove(w.path))
}

// Seal writes the present frame and the index, and closes the segment. Both files are on disk then.
func (w *Writer) Seal() error {
	err := w.Flush()
	err = errors.Join(err, w.file.Sync(), w.file.Close(), w.codec.Close())
	if err != nil {
		return fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	return w.index.write(w.path)
}
