package statefile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
)

// Format is the number of the format that this version writes, see the package comment.
const Format = 8

// OldestReader is the oldest format whose readers can read the file of this version.
const OldestReader = 1

// MetaBucket comes first in the file: it has the format, and under SealKey the seal of all values.
const (
	MetaBucket = "meta"
	SealKey    = "seal"
	FormatKey  = "format"
)

// All versions write the format like this: two numbers and their CRC32C, big endian.
func formatValue(format, reader int) []byte {
	v := binary.BigEndian.AppendUint16(nil, uint16(format)) //nolint:gosec // small
	v = binary.BigEndian.AppendUint16(v, uint16(reader))    //nolint:gosec // small
	return binary.BigEndian.AppendUint32(v, crc32.Checksum(v, crc32.MakeTable(crc32.Castagnoli)))
}

func parseFormat(v []byte) (format, reader int, err error) {
	if len(v) != 8 || binary.BigEndian.Uint32(v[4:]) != crc32.Checksum(v[:4], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, 0, Corruptf("the format number is unreadable")
	}
	return int(binary.BigEndian.Uint16(v)), int(binary.BigEndian.Uint16(v[2:])), nil
}

// verdict is the result of verify for an intact file.
type verdict struct {
	Format   int
	reader   int  // the oldest format whose versions read the file
	fellBack bool // see pages.walk
	size     int64
	free     int64 // the unused part of size
}

// verify reads the whole file: pages, every value's checksum, and the seal that shows missing
// values. It does not write and does not use bbolt. The error is a *NewerError, wraps
// ErrCorrupt, or is a read error.
func verify(path string, c *Codec) (found verdict, err error) {
	if err := folder.CheckRegular(path); err != nil {
		return verdict{}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return verdict{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return verdict{}, err
	}
	check := checker{codec: c, path: path, meta: c.Seed(0, MetaBucket)}
	walker := &pages{file: file, size: info.Size(), codec: c, visit: check.visit}
	err = Guard(func() (err error) {
		found.fellBack, err = walker.walk()
		return err
	})
	if err != nil {
		return verdict{}, err
	}
	found.Format, found.reader = check.format, check.reader
	found.size, found.free = walker.size, walker.size-walker.usage.used.Load()*walker.pageSize
	return found, check.done()
}

// checker sums up the values of a file.
type checker struct {
	codec         *Codec
	path          string
	meta          uint32 // the seed of the bucket meta, which comes first
	format        int
	reader        int
	sealed, found Seal
	sealedAt      bool

	mu sync.Mutex // guards found
}

func (c *checker) visit(seed uint32, key, stored []byte) error {
	if seed == c.meta && string(key) == FormatKey {
		return c.visitFormat(stored)
	}
	if c.format == 0 && seed != c.meta {
		return Corruptf("it has no format number")
	}
	if seed == c.meta && string(key) == SealKey {
		payload, err := c.codec.Payload(seed, key, stored)
		if err != nil {
			return err
		}
		c.sealedAt = true
		c.sealed, err = ParseSeal(payload)
		return err
	}
	c.mu.Lock()
	c.found.Add(stored)
	c.mu.Unlock()
	return c.codec.Check(seed, key, stored)
}

func (c *checker) visitFormat(stored []byte) error {
	format, reader, err := parseFormat(stored)
	if err != nil {
		return err
	}
	if reader > Format {
		return &NewerError{Path: c.path, Format: format}
	}
	if format == 0 {
		return Corruptf("it has format 0")
	}
	c.format, c.reader = format, reader
	return nil
}

func (c *checker) done() error {
	if c.format == 0 || !c.sealedAt {
		return Corruptf("it has no format number or no seal")
	}
	if c.found != c.sealed {
		return fmt.Errorf("%w: it has %d values instead of %d", ErrCorrupt, c.found.Count, c.sealed.Count)
	}
	return nil
}
