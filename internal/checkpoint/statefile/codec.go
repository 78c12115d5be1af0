package statefile

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
	// maxPayload is the largest size of a decompressed value: a pending delta has at most two
	// objects of 16 MiB, and an event that may contain both. A larger value, from a handler that
	// makes larger events, is not compressed.
	maxPayload = 80 << 20
	// minCompressed is the smallest payload that is compressed.
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

// Close releases the working memory.
func (c *Codec) Close() {
	c.dec.Close()
	_ = c.enc.Close() // there is no open stream
}

// Seed is the checksum of the place of a bucket inside the one with the seed parent, 0 for the top:
// a value is valid only at the place where it was written.
func (c *Codec) Seed(parent uint32, bucket string) uint32 {
	return crc32.Update(crc32.Update(parent, c.table, []byte(bucket)), c.table, []byte{0})
}

func (c *Codec) sum(seed uint32, key []byte, encoding byte, stored []byte) uint32 {
	seed = crc32.Update(seed, c.table, key)
	seed = crc32.Update(seed, c.table, []byte{0, encoding})
	return crc32.Update(seed, c.table, stored)
}

// Append appends the value of a payload under key in the bucket of the seed to buf.
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
	return c.seal(buf, start, seed, key)
}

// appendRaw is Append without compression.
func (c *Codec) appendRaw(buf []byte, seed uint32, key, payload []byte) []byte {
	start := len(buf)
	buf = append(append(buf, raw, 0, 0, 0, 0), payload...)
	return c.seal(buf, start, seed, key)
}

// seal sets the checksum of the value that begins at start.
func (c *Codec) seal(buf []byte, start int, seed uint32, key []byte) []byte {
	sum := c.sum(seed, key, buf[start], buf[start+header:])
	binary.LittleEndian.PutUint32(buf[start+1:], sum)
	return buf
}

// Check reports whether the value was written at this place with this content.
func (c *Codec) Check(seed uint32, key, value []byte) error {
	if len(value) < header {
		return Corruptf("a value of %d bytes", len(value))
	}
	if binary.LittleEndian.Uint32(value[1:]) != c.sum(seed, key, value[0], value[header:]) {
		return Corruptf("a value's checksum is wrong")
	}
	return nil
}

// Payload is the inverse of Append. The result shares no memory with value.
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

// Seal is a sum of all values of a file that shows missing values. The order of the values does not
// count.
type Seal struct{ Count, Sum uint64 }

// Add adds a value.
func (s *Seal) Add(value []byte) { s.Count++; s.Sum += mix(value) }

// Remove removes a value.
func (s *Seal) Remove(value []byte) { s.Count--; s.Sum -= mix(value) }

// mix makes a number of the checksum in a value and of its length, such that sums of these numbers
// do not cancel out (splitmix64).
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

// ErrCorrupt is wrapped by the error of a read of damaged data.
var ErrCorrupt = errors.New("the state file is damaged")

// Corruptf returns an error that wraps [ErrCorrupt].
func Corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
