package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// How the payload of a value is stored: its first byte. Four bytes of CRC32C follow, little endian,
// then the payload.
const (
	raw        = 0
	compressed = 1

	header = 1 + crc32.Size
)

const (
	// maxPayload bounds what a value may decompress to: a pending delta holds at most two objects
	// of 16 MiB, and an event that may hold both. What is larger, because a handler may make larger
	// events, is not compressed.
	maxPayload = 80 << 20
	// minCompressed is the payload from which on compression is tried.
	minCompressed = 128
)

// Codec makes values of payloads and payloads of values. It is safe for concurrent use; encoder and
// decoder keep their working memory.
type Codec struct {
	table *crc32.Table
	enc   *zstd.Encoder
	dec   *zstd.Decoder
}

// NewCodec returns a codec, which must be closed.
func NewCodec() (*Codec, error) {
	// The checksum of the frames is left out: ours covers more.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPayload), zstd.IgnoreChecksum(true))
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	return &Codec{crc32.MakeTable(crc32.Castagnoli), enc, dec}, nil
}

// Close lets go of the working memory.
func (c *Codec) Close() {
	c.dec.Close()
	_ = c.enc.Close() // it has no stream
}

// Seed is the checksum of the place of a bucket inside the one with the seed parent, 0 for the top:
// a value is valid only where it was written.
func (c *Codec) Seed(parent uint32, bucket string) uint32 {
	return crc32.Update(crc32.Update(parent, c.table, []byte(bucket)), c.table, []byte{0})
}

func (c *Codec) sum(seed uint32, key []byte, encoding byte, stored []byte) uint32 {
	seed = crc32.Update(seed, c.table, key)
	seed = crc32.Update(seed, c.table, []byte{0, encoding})
	return crc32.Update(seed, c.table, stored)
}

// Append appends to buf the value of the payload that stands under key in the bucket of the seed.
func (c *Codec) Append(buf []byte, seed uint32, key, payload []byte) []byte {
	start := len(buf)
	buf = append(buf, raw, 0, 0, 0, 0)
	compress := len(payload) >= minCompressed && len(payload) <= maxPayload
	if compress {
		buf[start] = compressed
		buf = c.enc.EncodeAll(payload, buf)
	}
	if !compress || len(buf)-start-header >= len(payload) {
		buf[start] = raw
		buf = append(buf[:start+header], payload...)
	}
	sum := c.sum(seed, key, buf[start], buf[start+header:])
	binary.LittleEndian.PutUint32(buf[start+1:], sum)
	return buf
}

// Check says whether the value was written in this place as it is.
func (c *Codec) Check(seed uint32, key, value []byte) error {
	if len(value) < header {
		return Corruptf("a value of %d bytes", len(value))
	}
	if binary.LittleEndian.Uint32(value[1:]) != c.sum(seed, key, value[0], value[header:]) {
		return Corruptf("a value's checksum is wrong")
	}
	return nil
}

// Payload is the inverse of append. The result shares no memory with value.
func (c *Codec) Payload(seed uint32, key, value []byte) ([]byte, error) {
	if err := c.Check(seed, key, value); err != nil {
		return nil, err
	}
	switch value[0] {
	case raw:
		return append([]byte(nil), value[header:]...), nil
	case compressed:
		payload, err := c.dec.DecodeAll(value[header:], nil)
		if err != nil {
			return nil, Corruptf("a value cannot be decompressed: %v", err)
		}
		return payload, nil
	}
	return nil, Corruptf("a value has encoding %d", value[0])
}

// Seal sums up all values of a file, so that one which is missing is noticed too. The order of the
// values does not count.
type Seal struct{ Count, Sum uint64 }

// Add adds a value.
func (s *Seal) Add(value []byte) { s.Count++; s.Sum += mix(value) }

// Remove takes out a value.
func (s *Seal) Remove(value []byte) { s.Count--; s.Sum -= mix(value) }

// mix makes of the checksum that stands in a value, and of its length, a number whose sums do not
// cancel out (splitmix64).
func mix(value []byte) uint64 {
	if len(value) < header {
		return 1
	}
	x := uint64(binary.LittleEndian.Uint32(value[1:])) | uint64(len(value))<<32
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Payload returns the payload of a seal.
func (s *Seal) Payload() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.Count), s.Sum)
}

// ParseSeal is the inverse of Payload.
func ParseSeal(payload []byte) (Seal, error) {
	if len(payload) != 16 {
		return Seal{}, Corruptf("the seal has %d bytes", len(payload))
	}
	return Seal{binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])}, nil
}

// ErrCorrupt is wrapped by the error of a read that found something that was not written so.
var ErrCorrupt = errors.New("the state file is damaged")

// Corruptf returns an error that wraps [ErrCorrupt].
func Corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
