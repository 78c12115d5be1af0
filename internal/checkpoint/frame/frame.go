// Package frame records the changes of transactions of the state file: a [Frame] has those of one
// transaction, which a follower applies to its own copy of the file. See the package comment of
// internal/checkpoint for the numbers.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
)

// Position is the place of a state file in the log of a fleet: the last frame that it has. The zero
// Position is that of a file that is in no log.
type Position struct {
	Term   uint64 // of the leader that wrote the frame
	Number uint64 // contiguous, also from one term to the next
}

// String names the frame.
func (p Position) String() string { return fmt.Sprintf("frame %d of term %d", p.Number, p.Term) }

// Frame has the changes of one transaction of a state file.
type Frame struct {
	Position        // of the file with the frame
	Before   uint64 // the term of the frame before
	// Seal is the sum of all values of the file with the frame: a follower that has another one
	// has another file.
	Seal statefile.Seal
	// Ops are the operations, see [Each]. They must not be modified.
	Ops []byte
	// TooLarge: the transaction has more than [MaxOps] bytes of operations, and Ops has none: a
	// follower needs a snapshot.
	TooLarge bool
}

// MaxOps limits the operations of a frame in bytes.
const MaxOps = 64 << 20

// The first byte of an encoded frame is its version. Then follow the oldest format whose readers
// can read the values, term, number and the term before as varints, count and sum of the seal (8
// bytes each, little endian), the operations, and the CRC32C of everything before (4 bytes).
const version = 1

var (
	// ErrDamaged is wrapped by the error of bytes that are no frame, and of operations that no
	// state file can have.
	ErrDamaged = errors.New("the frame is damaged")
	// ErrNewer is wrapped by the error of a frame that only a newer version can apply.
	ErrNewer = errors.New("the leader runs a newer version, whose frames this version cannot read")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends the encoded frame to buf.
func (f *Frame) Append(buf []byte) []byte {
	start := len(buf)
	buf = append(buf, version)
	for _, v := range []uint64{statefile.OldestReader, f.Term, f.Number, f.Before} {
		buf = binary.AppendUvarint(buf, v)
	}
	buf = binary.LittleEndian.AppendUint64(buf, f.Seal.Count)
	buf = binary.LittleEndian.AppendUint64(buf, f.Seal.Sum)
	buf = append(buf, f.Ops...)
	return binary.LittleEndian.AppendUint32(buf, crc32.Checksum(buf[start:], castagnoli))
}

// Decode is the inverse of [Frame.Append]. The result shares memory with data.
func Decode(data []byte) (Frame, error) {
	if len(data) == 0 {
		return Frame{}, damaged("it is empty")
	}
	if data[0] != version {
		return Frame{}, fmt.Errorf("%w (frame format %d)", ErrNewer, data[0])
	}
	rest := len(data) - crc32.Size
	if rest < 1 || binary.LittleEndian.Uint32(data[rest:]) != crc32.Checksum(data[:rest], castagnoli) {
		return Frame{}, damaged("its checksum is wrong")
	}
	r := reader{rest: data[1:rest:rest]}
	oldest := r.uint()
	f := Frame{Position: Position{Term: r.uint(), Number: r.uint()}, Before: r.uint()}
	if r.failed || len(r.rest) < 16 {
		return Frame{}, damaged("it is truncated")
	}
	if oldest > statefile.Format {
		return Frame{}, fmt.Errorf("%w (state format %d)", ErrNewer, oldest)
	}
	f.Seal = statefile.Seal{Count: binary.LittleEndian.Uint64(r.rest), Sum: binary.LittleEndian.Uint64(r.rest[8:])}
	f.Ops = r.rest[16:]
	return f, nil
}

// reader reads fields. After the first mistake it returns zero values.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) fail() { r.rest, r.failed = nil, true }

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
