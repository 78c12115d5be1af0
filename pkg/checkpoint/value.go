package checkpoint

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
)

// How the payload of a value is stored: its first byte. Four bytes of CRC32C follow, little endian, then the payload.
const (
	raw        = 0
	compressed = 1

	header = 1 + crc32.Size
)

const (
	// maxPayload bounds what a value may decompress to: an owed delta holds at most two objects of 16 MiB, and an event that may hold both.
	maxPayload = 80 << 20
	// minCompressed is the payload from which on compression is tried.
	minCompressed = 128
)

// codec makes values of payloads and payloads of values. It is safe for concurrent use; encoder and decoder keep their working memory.
type codec struct {
	table *crc32.Table
	enc   *zstd.Encoder
	dec   *zstd.Decoder
}

func newCodec() (*codec, error) {
	// The checksum of the frames is left out: ours covers more.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxPayload), zstd.IgnoreChecksum(true))
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	return &codec{crc32.MakeTable(crc32.Castagnoli), enc, dec}, nil
}

func (c *codec) close() {
	c.dec.Close()
	_ = c.enc.Close() // it has no stream
}

// seed is the checksum of the place of a bucket inside the one with the seed parent, 0 for the top: a value is valid only where it was
// written.
func (c *codec) seed(parent uint32, bucket string) uint32 {
	return crc32.Update(crc32.Update(parent, c.table, []byte(bucket)), c.table, []byte{0})
}

func (c *codec) sum(seed uint32, key []byte, encoding byte, stored []byte) uint32 {
	seed = crc32.Update(seed, c.table, key)
	seed = crc32.Update(seed, c.table, []byte{0, encoding})
	return crc32.Update(seed, c.table, stored)
}

// append appends to buf the value of the payload that stands under key in the bucket of the seed.
func (c *codec) append(buf []byte, seed uint32, key, payload []byte) []byte {
	start := len(buf)
	buf = append(buf, raw, 0, 0, 0, 0)
	if len(payload) >= minCompressed {
		buf[start] = compressed
		buf = c.enc.EncodeAll(payload, buf)
	}
	if len(payload) < minCompressed || len(buf)-start-header >= len(payload) {
		buf[start] = raw
		buf = append(buf[:start+header], payload...)
	}
	sum := c.sum(seed, key, buf[start], buf[start+header:])
	binary.LittleEndian.PutUint32(buf[start+1:], sum)
	return buf
}

// moved makes of a value that stands in one place the same value for another.
func (c *codec) moved(seed uint32, key, value []byte, toSeed uint32, toKey []byte) ([]byte, error) {
	if err := c.check(seed, key, value); err != nil {
		return nil, err
	}
	moved := append([]byte(nil), value...)
	binary.LittleEndian.PutUint32(moved[1:], c.sum(toSeed, toKey, moved[0], moved[header:]))
	return moved, nil
}

// check says whether the value was written in this place as it is.
func (c *codec) check(seed uint32, key, value []byte) error {
	if len(value) < header {
		return corruptf("a value of %d bytes", len(value))
	}
	if binary.LittleEndian.Uint32(value[1:]) != c.sum(seed, key, value[0], value[header:]) {
		return corruptf("a value's checksum is wrong")
	}
	return nil
}

// payload is the inverse of append. The result shares no memory with value.
func (c *codec) payload(seed uint32, key, value []byte) ([]byte, error) {
	if err := c.check(seed, key, value); err != nil {
		return nil, err
	}
	switch value[0] {
	case raw:
		return append([]byte(nil), value[header:]...), nil
	case compressed:
		payload, err := c.dec.DecodeAll(value[header:], nil)
		if err != nil {
			return nil, corruptf("a value cannot be decompressed: %v", err)
		}
		return payload, nil
	}
	return nil, corruptf("a value has encoding %d", value[0])
}

// seal sums up all values of a file, so that one which is missing is noticed too. The order of the values does not count.
type seal struct{ count, sum uint64 }

func (s *seal) add(value []byte)    { s.count++; s.sum += mix(value) }
func (s *seal) remove(value []byte) { s.count--; s.sum -= mix(value) }

// mix makes of the checksum that stands in a value, and of its length, a number whose sums do not cancel out (splitmix64).
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

func (s *seal) payload() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.count), s.sum)
}

func parseSeal(payload []byte) (seal, error) {
	if len(payload) != 16 {
		return seal{}, corruptf("the seal has %d bytes", len(payload))
	}
	return seal{binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:])}, nil
}
