package cel

import (
	"maps"
	"slices"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
)

// Program is a compiled expression. It is immutable and safe for concurrent use.
type Program struct {
	env     *Env
	scope   *check.Scope
	usage   check.Usage
	program cel.Program
	limit   int     // cost of one evaluation
	loops   bool    // it has macros
	refers  bool    // it is no constant
	source  ref.Val // the value of `source` without a delta
	linked  *check.Linked
	sources []string            // of look-ups, sorted
	costly  *check.Warning      // set if the possible cost exceeds the limit
	info    *jsonval.TypeInfo   // of the objects; nil: unknown
	from    string              // the sources that it was compiled for
	own     string              // the source of the expression, see [BySource]
	mixed   bool                // the others have other texts
	reads   []check.Read        // of fields of the object
	others  map[string]*Program // by source, if several sources have types
	names   []string            // of fields, and texts, in the expression: an error may quote them
}

// BySource joins the programs of several sources: a delta is evaluated by the program of its
// source. Errors name the source.
func BySource(programs map[string]*Program) *Program {
	var joined Program
	all := make(map[string]*Program, len(programs))
	for i, source := range slices.Sorted(maps.Keys(programs)) {
		p := *programs[source]
		p.own = source
		all[source] = &p
		if i == 0 {
			joined = p
			joined.from, joined.sources = "", nil
		}
		joined.sources = append(joined.sources, p.sources...)
		joined.from += strconv.Quote(source) + strconv.Quote(p.linked.Texts.Main().Text())
	}
	slices.Sort(joined.sources)
	joined.sources = slices.Compact(joined.sources)
	joined.others, joined.mixed = all, true
	return &joined
}
