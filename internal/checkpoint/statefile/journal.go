package statefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// journalMark follows the path of the state file in the name of its journal.
const journalMark = ".journal"

// Journal is a file beside the state file, for records that must be on disk before the next
// transaction: to append one costs a write and a sync, and a small transaction of bbolt several.
//
// A record is its length (4 bytes, little endian) and a value of [Codec], not compressed, whose
// place is the generation of the record. Reading ends at the first record that is not of the
// generation, so a new generation ends all records without a write, and the file keeps its size.
// The records of an append are on disk when it returns. A Journal is not safe for concurrent use.
type Journal struct {
	path  string
	codec *Codec
	file  *os.File
	info  os.FileInfo

	seed   uint32 // of the generation
	end    int64  // of the records of the generation
	buffer []byte
}

const lengthBytes = 4

// Journal opens the journal of the file, or makes it.
func (f *File) Journal() (*Journal, error) {
	path := f.cfg.Path + journalMark
	if err := folder.CheckRegular(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", fileerr.Explain(err))
	}
	j := &Journal{path: path, codec: f.codec, file: file}
	if j.info, err = file.Stat(); err == nil {
		err = folder.Sync(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the journal: %w", fileerr.Explain(err)), file.Close())
	}
	return j, nil
}

// ReadJournal is [Journal.Read] without a change of any file. A file without a journal has no
// records.
func (f *File) ReadJournal(generation uint64, take func(payload []byte) error) (lost int, err error) {
	j := &Journal{path: f.cfg.Path + journalMark, codec: f.codec}
	if _, err := os.Stat(j.path); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return j.Read(generation, take)
}

func (j *Journal) seedOf(generation uint64) uint32 {
	return j.codec.Seed(j.codec.Seed(0, journalMark), fmt.Sprint(generation))
}

// Read calls take with the payload of each record of a generation, and begins at its end. lost is
// the number of records that are damaged, and are followed by intact ones.
func (j *Journal) Read(generation uint64, take func(payload []byte) error) (lost int, err error) {
	content, err := os.ReadFile(j.path)
	if err != nil {
		return 0, fmt.Errorf("the journal: %w", fileerr.Explain(err))
	}
	j.Begin(generation)
	skipped := 0
	for at := 0; ; {
		value := recordAt(content, at)
		if value == nil {
			return lost, nil
		}
		at += lengthBytes + len(value)
		payload, err := j.codec.Payload(j.seed, nil, value)
		if err != nil {
			if skipped++; skipped > 1 {
				return lost, nil // the end, behind which an older generation begins
			}
			continue
		}
		lost, skipped, j.end = lost+skipped, 0, int64(at)
		if err := take(payload); err != nil {
			return lost, err
		}
	}
}

// recordAt returns the value of the record at a place; nil: there is none.
func recordAt(content []byte, at int) []byte {
	if len(content)-at < lengthBytes {
		return nil
	}
	rest := content[at+lengthBytes:]
	size := binary.LittleEndian.Uint32(content[at:])
	if size < header || uint64(size) > uint64(len(rest)) {
		return nil
	}
	return rest[:size]
}

// Begin begins a generation without records.
func (j *Journal) Begin(generation uint64) { j.seed, j.end = j.seedOf(generation), 0 }

// Append appends records with these payloads. After an error none of them counts, and they may be
// appended again.
func (j *Journal) Append(payloads [][]byte) error {
	if err := inPlace(j.path, j.info); err != nil {
		return err
	}
	j.buffer = j.buffer[:0]
	for _, payload := range payloads {
		start := len(j.buffer)
		j.buffer = append(j.buffer, make([]byte, lengthBytes)...)
		j.buffer = j.codec.appendRaw(j.buffer, j.seed, nil, payload)
		size := len(j.buffer) - start - lengthBytes
		binary.LittleEndian.PutUint32(j.buffer[start:], uint32(size)) //nolint:gosec // a value has at most maxPayload bytes
	}
	_, err := j.file.WriteAt(j.buffer, j.end)
	if err == nil {
		err = syncData(j.file)
	}
	if err != nil {
		return full(fmt.Errorf("the journal: %w", err))
	}
	j.end += int64(len(j.buffer))
	return nil
}

// Size returns the size of the records of the generation in bytes.
func (j *Journal) Size() int64 { return j.end }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
