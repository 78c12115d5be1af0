package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/history/segment"
)

// extension ends the name of a segment. Before it are the number of the segment, a minus, and the
// time for which its records are kept.
const extension = ".history"

const (
	// The size of a segment is a share of the maximum, within bounds: the oldest is removed as a
	// whole.
	segmentShare = 32
	leastSegment = 1 << 20
	mostSegment  = 16 << 20
	// ageShare is the share of its time that a segment collects records at most.
	ageShare = 8
)

// file is a segment that is not written any more.
type file struct {
	path   string
	number int
	keep   time.Duration
	size   int64 // with the index
	end    time.Time
}

// segmentsOf returns the segments of a folder, in the order of their numbers.
func segmentsOf(dir string) (all []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("history: %w", fileerr.Explain(err))
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), extension)
		number, keep, _ := strings.Cut(name, "-")
		n, numberErr := strconv.Atoi(number)
		k, keepErr := time.ParseDuration(keep)
		if !ok || numberErr != nil || keepErr != nil || !e.Type().IsRegular() {
			continue
		}
		f := file{path: filepath.Join(dir, e.Name()), number: n, keep: k}
		f.measure()
		f.readEnd()
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// measure reads the size.
func (f *file) measure() {
	f.size = 0
	for _, path := range []string{f.path, f.path + segment.IndexMark} {
		if info, err := os.Stat(path); err == nil {
			f.size += info.Size()
		}
	}
}

// readEnd reads the time of the last record. A segment without one has none.
func (f *file) readEnd() {
	r, err := segment.Open(f.path)
	if err != nil {
		return // the zero time: it is removed at once
	}
	defer r.Close()
	if frames, _ := r.Frames(); len(frames) > 0 {
		f.end = time.UnixMicro(frames[len(frames)-1].End)
	}
}

// index makes the index if there is none.
func (f *file) index() (lost bool, err error) {
	r, err := segment.Open(f.path)
	if err != nil {
		return true, err
	}
	indexed := r.Indexed()
	if err := r.Close(); err != nil || indexed {
		return false, err
	}
	lost, err = segment.Index(f.path)
	f.measure()
	return lost, err
}

// remove removes the segment and its index.
func (f *file) remove() error {
	err := os.Remove(f.path)
	if indexErr := os.Remove(f.path + segment.IndexMark); indexErr != nil && !errors.Is(indexErr, os.ErrNotExist) {
		err = errors.Join(err, indexErr)
	}
	return err
}

// series is the segment that is being written of those that are kept for one time.
type series struct {
	keep    time.Duration
	writer  *segment.Writer
	number  int
	encoder *encoder
	begun   time.Time // of the segment
}

// store is the folder of a [Log].
type store struct {
	dir    string
	sealed []file
	series map[time.Duration]*series
	// present is the last Begin: each segment has it.
	present *Begin
	number  int // of the last segment
	missing int // records that could not be written, and are not counted yet
}

// of returns the series of a time, with a segment to write to.
func (s *store) of(keep time.Duration, at time.Time) (*series, error) {
	if one := s.series[keep]; one != nil {
		return one, nil
	}
	for i := range s.sealed {
		s.number = max(s.number, s.sealed[i].number)
	}
	s.number++
	w, err := segment.Create(pathOf(s.dir, s.number, keep))
	if err != nil {
		return nil, err
	}
	one := &series{keep: keep, writer: w, number: s.number, encoder: newEncoder(), begun: at}
	s.series[keep] = one
	if s.present != nil {
		return one, one.writer.Add(at, one.encoder.begin(s.present), hashOf(keyBegin))
	}
	return one, nil
}

// add adds a record to a series, made by its encoder.
func (s *store) add(keep time.Duration, at time.Time, record func(*encoder) []byte, keys ...uint32) error {
	one, err := s.of(keep, at)
	if err != nil {
		s.missing++
		return err
	}
	if err := one.writer.Add(at, record(one.encoder), keys...); err != nil {
		return errors.Join(err, s.fail(one))
	}
	return nil
}

func (s *store) change(settings *Settings, c *Change) error {
	keep := cmp.Or(settings.Sources[c.Source].Keep, settings.Keep)
	return s.add(keep, c.At, func(e *encoder) []byte { return e.change(c) }, keyOf(c.Source, c.Key))
}

func (s *store) decision(settings *Settings, d *Decision) error {
	return s.add(settings.Keep, d.At, func(e *encoder) []byte { return e.decision(d) }, keyOf(d.Source, d.Key), keyOfRoute(d.Route))
}

func (s *store) lost(settings *Settings, l *Lost) error {
	return s.add(settings.Keep, l.At, func(e *encoder) []byte { return e.lost(l) }, hashOf(keyLost))
}

// begin records a Begin in all series.
func (s *store) begin(settings *Settings, b *Begin) error {
	_, known := s.series[settings.Keep]
	s.present = b
	if _, err := s.of(settings.Keep, b.At); err != nil { // a new segment has it already
		return err
	}
	var errs []error
	for keep := range s.series {
		if known || keep != settings.Keep {
			errs = append(errs, s.add(keep, b.At, func(e *encoder) []byte { return e.begin(b) }, hashOf(keyBegin)))
		}
	}
	return errors.Join(errs...)
}

// flush writes all records.
func (s *store) flush() (err error) {
	for _, one := range s.series {
		if flushErr := one.writer.Flush(); flushErr != nil {
			err = errors.Join(err, flushErr, s.fail(one))
		}
	}
	return err
}

// fail ends a segment to which a write has failed: its tail may be torn, so nothing may follow. A
// segment without any record is removed: on a full disk there would be one for each attempt.
func (s *store) fail(one *series) error {
	s.missing += one.writer.Lost()
	if len(one.writer.Frames()) > 0 {
		return s.end(one)
	}
	delete(s.series, one.keep)
	return one.writer.Discard()
}

// end seals a segment.
func (s *store) end(one *series) error {
	delete(s.series, one.keep)
	err := one.writer.Seal()
	s.adopt(one)
	return err
}

// adopt adds a segment that is not written any more.
func (s *store) adopt(one *series) {
	f := file{path: one.writer.Path(), number: one.number, keep: one.keep, end: one.writer.End()}
	f.measure()
	s.sealed = append(s.sealed, f)
	slices.SortFunc(s.sealed, func(a, b file) int { return cmp.Compare(a.number, b.number) })
}

// rolls reports whether a segment is full.
func (s *store) rolls(settings *Settings, now time.Time) bool {
	for _, one := range s.series {
		if one.isFull(settings, now) {
			return true
		}
	}
	return false
}

func (one *series) isFull(settings *Settings, now time.Time) bool {
	most := min(max(settings.MaxSize/segmentShare, leastSegment), mostSegment)
	return one.writer.Size() >= most || now.Sub(one.begun) >= one.keep/ageShare
}

// roll seals the segments that are full. The next record begins another one.
func (s *store) roll(settings *Settings, now time.Time) error {
	var errs []error
	for _, one := range s.series {
		if one.isFull(settings, now) {
			errs = append(errs, s.end(one))
		}
	}
	return errors.Join(errs...)
}

// seal seals all segments.
func (s *store) seal() error {
	var errs []error
	for _, one := range s.series {
		errs = append(errs, s.end(one))
	}
	return errors.Join(errs...)
}

// size returns the bytes of all segments.
func (s *store) size() (n int64) {
	for i := range s.sealed {
		n += s.sealed[i].size
	}
	for _, one := range s.series {
		n += one.writer.Size()
	}
	return n
}

// removeOld removes segments whose records are all too old, and the oldest ones while all together
// are too large or the disk lacks bytes.
func (s *store) removeOld(settings *Settings, now time.Time, lack int64) error {
	var errs []error
	remove := func(f *file) {
		if err := f.remove(); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fileerr.Explain(err))
		}
	}
	s.sealed = slices.DeleteFunc(s.sealed, func(f file) bool {
		old := now.Sub(f.end) > f.keep
		if old {
			remove(&f)
		}
		return old
	})
	for size := s.size(); (size > settings.MaxSize || lack > 0) && len(s.sealed) > 0; {
		size, lack = size-s.sealed[0].size, lack-s.sealed[0].size
		remove(&s.sealed[0])
		s.sealed = slices.Delete(s.sealed, 0, 1)
	}
	return errors.Join(errs...)
}
