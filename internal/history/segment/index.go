package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"sort"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// IndexMark ends the name of the index of a segment.
const IndexMark = ".index"

const indexMagic = "deltarouter history index 1\n"

// Frame is a frame of a segment.
type Frame struct {
	Offset     int64 // in the file
	Begin, End int64 // the times of the first and the last record, in microseconds since 1970
}

// index has the frames of a segment, and those of each key.
type index struct {
	frames   []Frame
	postings map[uint32][]uint32 // numbers of frames, ascending
}

// add adds a frame with records of these keys.
func (x *index) add(f Frame, keys []uint32) {
	n := uint32(len(x.frames)) //nolint:gosec // fewer than 2^32
	x.frames = append(x.frames, f)
	for _, key := range keys {
		if all := x.postings[key]; len(all) == 0 || all[len(all)-1] != n {
			x.postings[key] = append(all, n)
		}
	}
}

func (x *index) of(key uint32) (frames []Frame) {
	for _, n := range x.postings[key] {
		frames = append(frames, x.frames[n])
	}
	return frames
}

// write writes the index of a segment: the numbers of frames, of keys and of postings; the frames;
// the sorted keys; where the postings of each end; the postings; a CRC32C. All are little endian,
// times and offsets of 8 bytes and the rest of 4.
func (x *index) write(path string) error {
	keys := slices.Sorted(maps.Keys(x.postings))
	b := []byte(indexMagic)
	total := 0
	for _, key := range keys {
		total += len(x.postings[key])
	}
	for _, n := range []int{len(x.frames), len(keys), total} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n)) //nolint:gosec // fewer than 2^32
	}
	for _, f := range x.frames {
		for _, n := range []int64{f.Offset, f.Begin, f.End} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n)) //nolint:gosec // read as int64
		}
	}
	for _, key := range keys {
		b = binary.LittleEndian.AppendUint32(b, key)
	}
	end := 0
	for _, key := range keys {
		end += len(x.postings[key])
		b = binary.LittleEndian.AppendUint32(b, uint32(end)) //nolint:gosec // fewer than 2^32
	}
	for _, key := range keys {
		for _, n := range x.postings[key] {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	// a file of another name first, so that there is never a part of an index
	temporary := path + IndexMark + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	if err := os.Rename(temporary, path+IndexMark); err != nil {
		return fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	return nil
}

// stored is an index in the form of its file.
type stored struct {
	frames               []Frame
	keys, ends, postings []byte // 4 bytes each
}

var errIndex = errors.New("the index of the segment is damaged")

// readIndex reads the index of a segment.
func readIndex(path string) (*stored, error) {
	b, err := os.ReadFile(path + IndexMark)
	if err != nil {
		return nil, fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	return parseIndex(b)
}

func parseIndex(b []byte) (*stored, error) {
	const sum = 4
	if len(b) < len(indexMagic)+3*4+sum || string(b[:len(indexMagic)]) != indexMagic ||
		crc32.Checksum(b[:len(b)-sum], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-sum:]) {
		return nil, errIndex
	}
	rest := b[len(indexMagic) : len(b)-sum]
	frames, keys, postings := uint64(at(rest, 0)), uint64(at(rest, 1)), uint64(at(rest, 2))
	if rest = rest[3*4:]; frames*24+keys*8+postings*4 != uint64(len(rest)) {
		return nil, errIndex
	}
	x := &stored{frames: make([]Frame, frames)}
	for i := range x.frames {
		n := func(k int) int64 { return int64(binary.LittleEndian.Uint64(rest[24*i+8*k:])) } //nolint:gosec // as written
		x.frames[i] = Frame{n(0), n(1), n(2)}
	}
	rest = rest[frames*24:]
	x.keys, x.ends, x.postings = rest[:keys*4], rest[keys*4:keys*8], rest[keys*8:]
	return x, nil
}

func at(b []byte, n int) uint32 { return binary.LittleEndian.Uint32(b[4*n:]) }

// of returns the frames with a record of a key.
func (x *stored) of(key uint32) (frames []Frame) {
	n, found := sort.Find(len(x.keys)/4, func(i int) int {
		switch now := at(x.keys, i); {
		case key < now:
			return -1
		case key > now:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	from, to := 0, int(at(x.ends, n))
	if n > 0 {
		from = int(at(x.ends, n-1))
	}
	for i := from; i < to && 4*i < len(x.postings); i++ {
		if f := int(at(x.postings, i)); f < len(x.frames) {
			frames = append(frames, x.frames[f])
		}
	}
	return frames
}
