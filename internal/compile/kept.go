package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Reader is a consumer of the objects of a source with `cache: auto`.
type Reader struct {
	Name   string // "route restarts"
	Fields kept.Set
	// Why says why the consumer reads whole objects; empty: its fields are known.
	Why string
}

// keep finds the fields that the caches keep: of a source with `cache: auto` those that its readers
// read, of any other source all. Sources of one watch keep the fields of all of them.
//
// A reader gets objects from the cache also if it asks for changes only: as oldObject, as the last
// state of an object that was gone after a gap, in a resync, and when a reload adds it. So a field
// is kept for each way in which it is read. A reader of which this is unknown reads whole objects.
func (p *Plan) keep(kinds []plugins.HandlerKind) {
	for name, source := range p.Sources {
		source.Kept = kept.Whole()
		if s := p.Config.Sources[name]; s.Cache == config.CacheAuto {
			source.Readers = p.readers(name, s, kinds)
			source.Kept = kept.Identity()
			for _, r := range source.Readers {
				source.Kept = source.Kept.Or(r.Fields)
			}
		}
		p.Sources[name] = source
	}
	pairs := pairsOfSharing(p.Sources)
	for shared := true; shared; {
		shared = false
		for _, pair := range pairs {
			a, b := pair[0], pair[1]
			if one, other := p.Sources[a], p.Sources[b]; !one.Kept.Equal(other.Kept) {
				name := fmt.Sprintf("source %s, which has the same watch", b)
				one.Readers = slices.DeleteFunc(one.Readers, func(r Reader) bool { return r.Name == name })
				one.Readers = append(one.Readers, Reader{Name: name, Fields: other.Kept})
				one.Kept = one.Kept.Or(other.Kept)
				p.Sources[a], shared = one, true
			}
		}
	}
}

// pairsOfSharing returns the names of sources that have a watch in common, in both orders. Its time
// grows with the sources and the pairs, not with the square of the sources.
func pairsOfSharing(sources map[string]Source) (pairs [][2]string) {
	users := make(map[informer.Spec][]string)
	names := slices.Sorted(maps.Keys(sources))
	for _, name := range names {
		for _, spec := range sources[name].Specs {
			users[spec] = append(users[spec], name)
		}
	}
	for _, a := range names {
		var others []string
		for _, spec := range sources[a].Specs {
			others = append(others, users[spec]...)
		}
		slices.Sort(others)
		for _, b := range slices.Compact(others) {
			if a != b {
				pairs = append(pairs, [2]string{a, b})
			}
		}
	}
	return pairs
}

// readers returns the consumers of the objects of a source.
func (p *Plan) readers(name string, s *config.Source, kinds []plugins.HandlerKind) (all []Reader) {
	if s.Resource == "v1/secrets" {
		all = append(all, Reader{"state folder", kept.Whole(), "of Secrets only the identity is saved"})
	}
	for _, index := range slices.Sorted(maps.Keys(p.Sources[name].Indexes)) {
		all = appendReader(all, "index "+index, name, []string{name}, p.Sources[name].Indexes[index]...)
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		all = appendReader(all, "route "+r.Name, name, r.From, r.programs()...)
		for _, watched := range slices.Sorted(maps.Keys(r.WatchPrograms)) {
			all = appendReader(all, "watches of route "+r.Name, name, []string{watched}, r.WatchPrograms[watched])
		}
		if reader, ok := p.delivered(r, name, kinds); ok {
			all = append(all, reader)
		}
		if slices.ContainsFunc(r.HandlerGrants, func(g plugins.LookupGrant) bool { return g.Source == name }) {
			all = append(all, Reader{"handler " + r.Handler, kept.Whole(), "it looks up whole objects"})
		}
	}
	return all
}

// programs returns the expressions about the deltas of the route.
func (r *Route) programs() []*cel.Program {
	all := []*cel.Program{r.FilterProgram, r.WhenProgram, r.EmitProgram, r.KeyProgram, r.LimitProgram}
	for _, name := range slices.Sorted(maps.Keys(r.WithPrograms)) {
		all = append(all, r.WithPrograms[name])
	}
	return all
}

// appendReader adds the reader with these programs, if they read objects of the source. of has the
// sources of their own objects.
func appendReader(all []Reader, reader, source string, of []string, programs ...*cel.Program) []Reader {
	var fields kept.Set
	reads := false
	for _, program := range programs {
		if program == nil {
			continue
		}
		if set, ok := cel.Fields(program, of...)[source]; ok {
			fields, reads = fields.Or(set), true
		}
	}
	if !reads {
		return all
	}
	why := ""
	if fields.IsWhole() {
		why = "an expression uses the whole object"
	}
	return append(all, Reader{reader, fields, why})
}

// fieldSelector is a kind whose handlers get only some fields of each object. Fields returns their
// paths, as keys, which the configuration alone decides; none: the handlers may read all fields.
type fieldSelector interface {
	Fields(node config.Node) [][]string
}

// delivered returns the reader that makes the events of a route: its handler, or, without one, the
// delta itself.
func (p *Plan) delivered(r *Route, source string, kinds []plugins.HandlerKind) (reader Reader, ok bool) {
	if !slices.Contains(r.From, source) {
		return reader, false
	}
	if r.Handler == "" {
		// a downstream route passes on the event of its upstream route
		whole := r.Emit == nil && len(r.Upstream) == 0
		return Reader{"route " + r.Name, kept.Whole(), "its events contain the whole object: set emit or a handler with fields"}, whole
	}
	c := p.Config.Handlers[r.Handler]
	reader = Reader{"handler " + r.Handler, kept.Whole(), "the fields that it reads are not known: set fields, or sha256 of a module that declares them"}
	if c == nil {
		return reader, true
	}
	kind, ok := KindOf(kinds, c.Kind).(fieldSelector)
	if !ok {
		return reader, true
	}
	if paths := kind.Fields(c.Config); len(paths) > 0 {
		reader.Fields, reader.Why = kept.Of(paths...), ""
	}
	return reader, true
}
