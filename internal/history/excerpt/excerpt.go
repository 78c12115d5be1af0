// Package excerpt makes a recording of a span of a history, so that everything that reads
// recordings reads the history, too, on any machine.
//
//	Reader ──records──► Write ──lines──► recording.Writer ──► replay, backtest
//	cache ──objects without a change──┘
//
// The history has the state of an object before its first change. So the objects as they were at
// the begin are those states, and the cached objects that have not changed since. A first pass over
// the span writes them, and a second one the changes: neither has more in memory than the
// identities of the objects that changed.
package excerpt

import (
	"context"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Options select an excerpt.
type Options struct {
	// Span has both ends. Its begin is not before that of the history.
	Span history.Span
	// Header is the first line. Its sources are those of the excerpt.
	Header recording.Header
	// Cached returns the objects of a source that the cache has now. One that changes meanwhile,
	// for the first time in the span, is in the recording as it is now.
	Cached    func(source string) iter.Seq[Object]
	Namespace string // the only one of the objects; empty: all
	Initial   bool   // leave the changes out
}

// Object is a cached object.
type Object struct {
	Kind    string
	Key     event.Key
	Created time.Time
	Text    func() string // its JSON; empty: it is not known
}

// Write writes the lines of an excerpt behind the header. Records that follow a crash and repeat
// earlier ones are left out. The error is that of ctx or of the output.
func Write(ctx context.Context, r *history.Reader, out *recording.Writer, o Options) error {
	end := recording.Line{Op: recording.End, At: o.Span.To.Sub(o.Span.From)}
	r.Damaged = func(string, error) { end.Damaged++ }
	w := &writer{Options: o, out: out, changed: make(map[identity]bool)}
	if err := r.Records(ctx, o.Span, w.first); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(o.Header.Sources))
	for _, name := range names {
		if err := w.cached(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := out.Write(recording.Line{Op: recording.Synced, Source: name}); err != nil {
			return err
		}
	}
	r.Damaged = nil // the second pass meets the same damage
	w.recent = make(map[version]bool)
	if !o.Initial {
		if err := r.Records(ctx, o.Span, w.change); err != nil {
			return err
		}
	}
	end.Stateless = w.stateless
	return out.Write(end)
}

// identity is a hash of a source and the name of an object.
type identity [2]uint64

// version is a hash of a change. A change that is recorded again has the same.
type version uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// mostRecent is the number of changes among which a repetition is found.
const mostRecent = 1 << 17

type writer struct {
	Options

	out       *recording.Writer
	changed   map[identity]bool // objects with a change in the span
	stateless int

	recent map[version]bool
	order  []version // of recent, the oldest first
}

func identityOf(source string, key event.Key) identity {
	text := source + "\x00" + key.Namespace + "\x00" + key.Name
	return identity{maphash.String(seeds[0], text), maphash.String(seeds[1], text)}
}

// wants returns a change of the excerpt that has states; nil: the record is another one.
func (w *writer) wants(record any) *history.Change {
	c, ok := record.(*history.Change)
	if !ok {
		return nil
	}
	// An object of a first list existed. Its state is that before its next change, or the present.
	if _, ok = w.Header.Sources[c.Source]; !ok || c.Initial || !w.within(c.Key) {
		return nil
	}
	return c
}

func (w *writer) within(key event.Key) bool { return w.Namespace == "" || w.Namespace == key.Namespace }

// first writes the state of an object before its first change.
func (w *writer) first(record any) error {
	c := w.wants(record)
	if c == nil {
		return nil
	}
	id := identityOf(c.Source, c.Key)
	if w.changed[id] {
		return nil
	}
	w.changed[id] = true
	if c.Before == "" {
		return nil
	}
	return w.out.Write(recording.Line{Op: recording.Existing, Source: c.Source, Kind: c.Kind, Object: c.Before})
}

// cached writes the objects of a source that have not changed.
func (w *writer) cached(ctx context.Context, source string) error {
	for o := range w.Cached(source) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !w.within(o.Key) || w.changed[identityOf(source, o.Key)] || o.Created.After(w.Span.To) {
			continue
		}
		if text := o.Text(); text != "" {
			if err := w.out.Write(recording.Line{Op: recording.Existing, Source: source, Kind: o.Kind, Object: text}); err != nil {
				return err
			}
		}
	}
	return nil
}

// change writes a change.
func (w *writer) change(record any) error {
	c := w.wants(record)
	if c == nil || w.repeats(c) {
		return nil
	}
	l := recording.Line{At: max(0, c.At.Sub(w.Span.From)), Source: c.Source, Kind: c.Kind, Stale: c.Stale, Object: c.After}
	switch c.Op {
	case event.Added:
		l.Op = recording.Added
	case event.Updated:
		l.Op = recording.Updated
	case event.Deleted:
		l.Op, l.Object = recording.Deleted, c.Before
	case event.Deselected:
		l.Op, l.Object = recording.Deselected, c.Before
	default: // no source has another one
	}
	if l.Op == "" || l.Object == "" {
		w.stateless++
		return nil
	}
	return w.out.Write(l)
}

// repeats reports whether a change is recorded once more: after a crash, the changes since the last
// cut arrive again.
func (w *writer) repeats(c *history.Change) bool {
	v := version(maphash.String(seeds[0], c.Source+"\x00"+c.UID+"\x00"+c.Version+"\x00"+c.Op.String()))
	if w.recent[v] {
		return true
	}
	w.recent[v] = true
	if w.order = append(w.order, v); len(w.order) > mostRecent {
		delete(w.recent, w.order[0])
		w.order = w.order[1:]
	}
	return false
}
