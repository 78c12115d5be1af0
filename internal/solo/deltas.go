package solo

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Objects returns the deltas of a text with objects in YAML or JSON, also as lists. The first state
// of an object is added, each further one is an update.
func (h *Handler) Objects(text []byte) (all []*event.Delta, err error) {
	objects, err := manifest.Objects(text)
	if err != nil {
		return nil, err
	}
	known, err := compile.SavedSchemas(h.cfg.Schemas)
	if err != nil {
		return nil, err
	}
	seen := h.newStates()
	for i, object := range objects {
		raw := rawjson.Value(object)
		source := h.prefer(explain.SourcesOf(h.cfg, known, raw))
		if source == "" {
			return nil, fmt.Errorf("object %d: no source of the configuration has objects of %s %s; it has %s",
				i+1, raw.Get("apiVersion").Str(), raw.Get("kind").Str(), strings.Join(slices.Sorted(maps.Keys(h.cfg.Sources)), ", "))
		}
		d, err := seen.delta(source, event.Updated, string(object))
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", i+1, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// prefer returns the first source that a route of the handler reads, else the first; "": none.
func (h *Handler) prefer(sources []string) string {
	for _, route := range h.cfg.Routes {
		if route.Handler != h.Name {
			continue
		}
		for _, source := range sources {
			if slices.Contains(route.From, source) {
				return source
			}
		}
	}
	if len(sources) == 0 {
		return ""
	}
	return sources[0]
}

// Recording returns the deltas of a recording of router record. The last error, if any, wraps one
// of package recording.
func (h *Handler) Recording(in io.Reader) iter.Seq2[*event.Delta, error] {
	return func(yield func(*event.Delta, error) bool) {
		r, err := recording.NewReader(in, recording.Limits{})
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		seen := h.newStates()
		for {
			line, err := r.Next()
			if errors.Is(err, io.EOF) || err == nil && line.Op == recording.End {
				return
			}
			var d *event.Delta
			if err == nil {
				d, err = seen.line(line)
			}
			if (d != nil || err != nil) && !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// states has the last state of each object.
type states struct {
	h     *Handler
	specs map[string]informer.Spec // by source
	last  map[string]*event.Object // by source and key
}

func (h *Handler) newStates() *states {
	return &states{h, make(map[string]informer.Spec), make(map[string]*event.Object)}
}

// line returns the delta of a line of a recording; nil: it has none.
func (s *states) line(l recording.Line) (*event.Delta, error) {
	op, known := map[recording.Op]event.Op{
		recording.Existing: event.Added, recording.Added: event.Added, recording.Updated: event.Updated,
		recording.Deleted: event.Deleted, recording.Deselected: event.Deselected, recording.Sync: event.Sync,
	}[l.Op]
	if !known {
		return nil, nil //nolint:nilnil // the line has no object
	}
	if s.h.cfg.Sources[l.Source] == nil {
		return nil, fmt.Errorf("the recording has the source %q, which the configuration has not%s", l.Source,
			config.Suggest(l.Source, slices.Sorted(maps.Keys(s.h.cfg.Sources))))
	}
	d, err := s.delta(l.Source, op, l.Object)
	if err != nil {
		return nil, fmt.Errorf("an object of source %s: %w", l.Source, err)
	}
	d.Initial, d.Stale = l.Op == recording.Existing, l.Stale
	return d, nil
}

// delta returns the delta of an object in the form of its source. An update of an unknown object
// is its addition.
func (s *states) delta(source string, op event.Op, text string) (*event.Delta, error) {
	spec, ok := s.specs[source]
	if !ok {
		specs, err := informer.SpecsOf(s.h.cfg.Sources[source])
		if err != nil {
			return nil, fmt.Errorf("source %q: %w", source, err)
		}
		spec = specs[0]
		s.specs[source] = spec
	}
	object, err := informer.Keep(spec, s.h.cfg.Cluster.Name, text)
	if err != nil {
		return nil, err
	}
	at := source + "\x00" + object.Key().String()
	d := &event.Delta{Source: source, Op: op, New: object, Seen: time.Now()}
	switch old := s.last[at]; {
	case op == event.Deleted || op == event.Deselected:
		d.Old, d.New = object, nil
		delete(s.last, at)
		return d, nil
	case op == event.Updated && old == nil:
		d.Op = event.Added
	case op == event.Updated && s.h.cfg.Sources[source].Cache != config.CacheIdentity:
		d.Old = old
	}
	s.last[at] = object
	return d, nil
}
