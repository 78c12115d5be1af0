package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/history/segment"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Reader reads a history: that of a folder, or of a running [Log]. It reads the segments that exist
// when it is made, and may be used by one goroutine at a time.
type Reader struct {
	parts []part
	cut   time.Time // it has no later records; zero: the file has the last ones
	// Damaged is called with the path of a segment of which only a part can be read, or none; nil:
	// it is not called.
	Damaged func(path string, err error)
	// Stateless leaves out the states of changes, which takes less time. Damage of a state is not
	// noticed then.
	Stateless bool
}

// part is a segment.
type part struct {
	file

	// live finds the frames of a key in a segment that is being written, whose index is in memory;
	// nil: the file has them.
	live func(key uint32) (frames []segment.Frame, ok bool)
	// frames are those that such a segment had when the reader was made: a later one may be
	// incomplete.
	frames []segment.Frame
}

// OpenFolder returns a reader of a folder. Nothing may write to it meanwhile.
func OpenFolder(dir string) (*Reader, error) {
	all, err := segmentsOf(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{}
	for i := range all {
		r.parts = append(r.parts, part{file: all[i]})
	}
	return r, nil
}

// Segments returns the files of the history: for each segment, in their order, its path and that of
// its index, if it has one.
func (r *Reader) Segments() (all [][]string) {
	for i := range r.parts {
		files := []string{r.parts[i].path}
		if index := files[0] + segment.IndexMark; isThere(index) {
			files = append(files, index)
		}
		all = append(all, files)
	}
	return all
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Reader returns a reader of everything that was recorded before the call. The error is that of ctx
// or of the folder.
func (l *Log) Reader(ctx context.Context) (*Reader, error) {
	cut := l.cfg.Clock.Now()
	if err := l.Sync(ctx); err != nil {
		return nil, err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.closed != nil {
		return nil, fmt.Errorf("the history: %w", l.closed)
	}
	r := &Reader{cut: cut}
	for i := range l.store.sealed {
		r.parts = append(r.parts, part{file: l.store.sealed[i]})
	}
	for _, one := range l.store.series {
		live := func(key uint32) (frames []segment.Frame, ok bool) {
			l.writing.Lock()
			defer l.writing.Unlock()
			if l.store.series[one.keep] != one {
				return nil, false // it was sealed since
			}
			return one.writer.Of(key), true
		}
		now := l.cfg.Clock.Now()
		r.parts = append(r.parts, part{
			file{path: one.writer.Path(), number: one.number, keep: one.keep, end: now.Add(time.Second)}, live, one.writer.Frames(),
		})
	}
	slices.SortFunc(r.parts, func(a, b part) int { return a.number - b.number })
	return r, nil
}

// Span is a part of the history. Zero times are open ends.
type Span struct{ From, To time.Time }

func (s Span) has(at time.Time) bool {
	return (s.From.IsZero() || !at.Before(s.From)) && (s.To.IsZero() || !at.After(s.To))
}

// maxStates bounds the states of the records that [Reader.Object] returns, in bytes.
const maxStates = 64 << 20

// Object returns the changes of the objects with a name in a source, and the decisions of routes
// about them, in their order: the newest ones, at most limit, and fewer if their states are large.
// more reports that there are older ones. The error is that of ctx.
func (r *Reader) Object(ctx context.Context, source string, key event.Key, in Span, limit int) (records []any, more bool, err error) {
	size := 0
	trim := func(most int) {
		for len(records) > most || size > maxStates && len(records) > 1 {
			if c, ok := records[0].(*Change); ok {
				size -= len(c.Before) + len(c.After)
			}
			records, more = slices.Delete(records, 0, 1), true
		}
	}
	err = r.each(ctx, keyOf(source, key), in, func(record any) {
		switch c := record.(type) {
		case *Change:
			if c.Source == source && c.Key == key {
				records, size = append(records, c), size+len(c.Before)+len(c.After)
			}
		case *Decision:
			if c.Source == source && c.Key == key {
				records = append(records, c)
			}
		}
		// the segments of a source and those of decisions may overlap
		trim(4 * limit)
	})
	slices.SortStableFunc(records, func(a, b any) int { return timeOf(a).Compare(timeOf(b)) })
	trim(limit)
	return records, more, err
}

func timeOf(record any) time.Time {
	switch c := record.(type) {
	case *Change:
		return c.At
	case *Decision:
		return c.At
	case *Lost:
		return c.At
	case *Begin:
		return c.At
	}
	return time.Time{}
}

// Begins returns the starts and reloads, in their order. A start is repeated at the begin of each
// segment.
func (r *Reader) Begins(ctx context.Context, in Span) (all []*Begin, err error) {
	err = r.each(ctx, hashOf(keyBegin), in, func(record any) {
		if b, ok := record.(*Begin); ok {
			all = append(all, b)
		}
	})
	slices.SortStableFunc(all, func(a, b *Begin) int { return a.At.Compare(b.At) })
	return all, err
}

// Losses returns the records that say that others were lost.
func (r *Reader) Losses(ctx context.Context, in Span) (all []*Lost, err error) {
	err = r.each(ctx, hashOf(keyLost), in, func(record any) {
		if l, ok := record.(*Lost); ok {
			all = append(all, l)
		}
	})
	return all, err
}

// Decisions returns the last decisions of a route that are wanted, the newest first, at most limit.
func (r *Reader) Decisions(ctx context.Context, route string, in Span, limit int, wanted func(*Decision) bool) (all []*Decision, err error) {
	for _, p := range slices.Backward(r.parts) {
		if len(all) >= limit {
			break
		}
		if !p.overlaps(in) {
			continue
		}
		var here []*Decision
		// Objects are defined by any of their records, so the whole segment is read if it has any
		// decision of the route.
		err := r.read(ctx, &p, nil, func(record any) bool {
			if d, ok := record.(*Decision); ok && d.Route == route && in.has(d.At) && wanted(d) {
				if here = append(here, d); len(here) > 2*limit {
					here = slices.Delete(here, 0, limit) // of a segment the last ones are wanted
				}
			}
			return true
		}, keyOfRoute(route))
		if err != nil {
			return all, err
		}
		slices.Reverse(here)
		all = append(all, here...)
	}
	return all[:min(limit, len(all))], nil
}

// Records calls take with all records of a span in the order of time, until it returns an error.
func (r *Reader) Records(ctx context.Context, in Span, take func(record any) error) error {
	// the segments of one time to keep follow each other, and those of several overlap
	series := make(map[time.Duration][]*part)
	for i := range r.parts {
		if p := &r.parts[i]; p.overlaps(in) {
			series[p.keep] = append(series[p.keep], p)
		}
	}
	var failed error
	var heads []*head
	for _, keep := range slices.Sorted(maps.Keys(series)) {
		next, stop := iter.Pull(func(yield func(any) bool) {
			for _, p := range series[keep] {
				going := true
				err := r.read(ctx, p, nil, func(record any) bool {
					going = !in.has(timeOf(record)) || yield(record)
					return going
				})
				if failed = errors.Join(failed, err); !going || err != nil {
					return
				}
			}
		})
		defer stop()
		h := &head{next: next}
		if h.pull() {
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		first := slices.MinFunc(heads, func(a, b *head) int { return a.at.Compare(b.at) })
		if err := take(first.record); err != nil {
			return err
		}
		if !first.pull() {
			heads = slices.DeleteFunc(heads, func(h *head) bool { return h == first })
		}
	}
	return failed
}

// head is the next record of a series of segments.
type head struct {
	next   func() (any, bool)
	record any
	at     time.Time
}

func (h *head) pull() (ok bool) {
	if h.record, ok = h.next(); ok {
		h.at = timeOf(h.record)
	}
	return ok
}

// overlaps reports whether a segment may have records of a span. Its begin is not known without a
// look into the file.
func (p *part) overlaps(in Span) bool { return in.From.IsZero() || !p.end.Before(in.From) }

// each calls take with the records of a key.
func (r *Reader) each(ctx context.Context, key uint32, in Span, take func(any)) error {
	for i := range r.parts {
		if !r.parts[i].overlaps(in) {
			continue
		}
		err := r.read(ctx, &r.parts[i], &key, func(record any) bool {
			if in.has(timeOf(record)) {
				take(record)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// read decodes the records of a segment, those of a key or all, until take returns false. With a
// key in has, it reads the segment only if it has records of that. Damage is no error: the records
// before it are read.
func (r *Reader) read(ctx context.Context, p *part, key *uint32, take func(any) bool, has ...uint32) error {
	in, err := segment.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has become too old since
	}
	if err != nil {
		r.damaged(p.path, err)
		return nil
	}
	defer in.Close()
	for _, key := range has {
		if of, err := p.framesOf(in, key); err == nil && len(of) == 0 {
			return nil
		}
	}
	var frames []segment.Frame
	if key != nil {
		frames, err = p.framesOf(in, *key)
	} else if frames = p.frames; p.live == nil {
		frames, err = in.Frames()
	}
	if err != nil {
		r.damaged(p.path, err)
	}
	d := newDecoder()
	d.stateless = r.Stateless || len(has) > 0 // decisions are asked for
	going := true
	for _, f := range frames {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var refused error
		err := in.Read(f, func(record segment.Record) bool {
			if key != nil && !slices.Contains(record.Keys, *key) {
				return true
			}
			decoded, err := d.decode(record)
			if err != nil {
				refused = err
				return false
			}
			going = decoded == nil || take(decoded)
			return going
		})
		if err = errors.Join(err, refused); err != nil {
			r.damaged(p.path, err)
			return nil
		}
		if !going {
			return nil
		}
	}
	return nil
}

// framesOf returns the frames that may have records of a key.
func (p *part) framesOf(in *segment.Reader, key uint32) ([]segment.Frame, error) {
	if p.live != nil && !in.Indexed() {
		if frames, ok := p.live(key); ok {
			return frames, nil
		}
	}
	return in.Of(key)
}

func (r *Reader) damaged(path string, err error) {
	if r.Damaged != nil {
		r.Damaged(path, fmt.Errorf("%w; the records before are shown", err))
	}
}

// First returns the time of the oldest record; zero: there is none.
func (r *Reader) First() time.Time {
	for i := range r.parts { // a segment begins before those with a higher number
		in, err := segment.Open(r.parts[i].path)
		if err != nil {
			continue
		}
		frames, _ := in.Frames()
		if err := in.Close(); err == nil && len(frames) > 0 {
			return time.UnixMicro(frames[0].Begin)
		}
	}
	return time.Time{}
}

// End returns the time until which the reader has the records: that of its making, or of the last
// record of a folder; zero: there is none.
func (r *Reader) End() time.Time {
	end := r.cut
	for i := range r.parts {
		if p := &r.parts[i]; r.cut.IsZero() && p.end.After(end) {
			end = p.end
		}
	}
	return end
}
