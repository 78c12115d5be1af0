package expr

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// interruptFrequency is after how many rounds of a loop an evaluation looks whether its context has ended.
const interruptFrequency = 100

// Program is a compiled expression. It is immutable and safe for concurrent use.
type Program struct {
	env     *Env
	scope   *scope
	usage   Usage
	program cel.Program
	limit   int  // cost of one evaluation
	loops   bool // it has macros
	refers  bool // it is no constant
	paths   []path
	source  ref.Val // what `source` is where there is no delta
	indexes []string
	sources []string
	costly  *Warning            // what it may cost; nil: not more than an evaluation may
	shape   *shape              // of the objects; nil: not known
	from    string              // the sources that it was compiled for
	own     string              // the source whose own expression it is, see [BySource]
	mixed   bool                // others were compiled of other texts
	uses    []use               // of variables that not every place has
	others  map[string]*Program // by source, where there are several whose objects are known

	// for errors
	units  []unit
	info   *ast.SourceInfo
	linked bool
	names  []string
}

// BySource makes one program of one for each source: of a delta, that of its source is evaluated. Errors say whose it was.
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
		joined.from += strconv.Quote(source) + strconv.Quote(p.units[len(p.units)-1].ast.Source().Content())
	}
	slices.Sort(joined.sources)
	joined.sources = slices.Compact(joined.sources)
	joined.others, joined.mixed = all, true
	return &joined
}

// Input is what an evaluation is about.
type Input struct {
	Delta *event.Delta
	Cache Cache // may be nil for a program without [Program.Sources]
	// Group is the deltas that the value is about together, of which Delta is the last one: `objects` has their objects. nil: Delta alone.
	Group []*event.Delta
	// Budget is shared with other evaluations; nil: the program's own limit is all.
	Budget *Budget
}

// Cache is where lookup, count, get and list look. Its methods must be safe for concurrent use and return at once.
type Cache interface {
	// Lookup returns the objects of a source that an index has under value; index "": all. The slice is not modified.
	Lookup(source, index, value string) []*event.Object
	// Count returns how many objects Lookup would return.
	Count(source, index, value string) int
	// Get returns an object or nil.
	Get(source, namespace, name string) *event.Object
}

// Uses reports whether the expression refers to a variable of the rules about time (now, since, late, repeat, suppressed or objects), or to
// event or events.
func (p *Program) Uses(variable string) bool {
	_, uses := p.UseOf(variable)
	return uses
}

// UseOf returns where the expression refers to such a variable for the first time: in which define, if it is not its own text, and at which
// place. False: it does not. What each source has an expression of its own for is looked at in the order of their names.
func (p *Program) UseOf(variable string) (at Use, ok bool) {
	programs := []*Program{p}
	for _, source := range slices.Sorted(maps.Keys(p.others)) {
		programs = append(programs, p.others[source])
	}
	for _, program := range programs {
		for _, u := range program.uses {
			if u.variable == variable {
				return Use{Source: program.own, Define: u.define, Line: u.line, Column: u.column}, true
			}
		}
	}
	return Use{}, false
}

// Use is a place where an expression refers to a variable.
type Use struct {
	Source       string // whose expression it is, if each source has its own, see [BySource]
	Define       string // the define that the place is in; empty: the expression itself
	Line, Column int    // counted as in [Issue]
}

// Sources returns the sources that the expression looks things up in, sorted.
func (p *Program) Sources() []string { return p.sources }

// Indexes returns the indexes that the expression looks things up in, as source.index.
func (p *Program) Indexes() []string { return p.indexes }

// Defines returns the names of the defines that the expression uses, those that others of them use included.
func (p *Program) Defines() (names []string) {
	for _, u := range p.units {
		if u.define != "" {
			names = append(names, u.define)
		}
	}
	return names
}

// Match evaluates a filter. Errors: errors.Is [ErrAbsent] or [ErrCost], the context's, or one of type; all are *[EvalError].
func (p *Program) Match(ctx context.Context, in Input) (bool, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.run(ctx)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, p.wrongResult(v)
	}
	return bool(b), nil
}

// Keys evaluates an index: the keys that the object has in it, see [canonical]. Of a list each element is one, of a map each of its
// keys. null, an absent optional, "" and what is empty are none. Errors are as with [Program.Match].
func (p *Program) Keys(obj *event.Object) ([]string, error) {
	r := Reader{in: evaluation{of: obj}}
	return r.Keys(nil, p)
}

// unwrap is the value of an optional, null if it has none.
func unwrap(v ref.Val) ref.Val {
	optional, ok := v.(*types.Optional)
	switch {
	case !ok:
		return v
	case optional.HasValue():
		return unwrap(optional.GetValue())
	}
	return types.NullValue
}

// Emitted is an event that an emit makes.
type Emitted struct {
	Type, Subject string // empty: as by default
	Data          []byte // a JSON object
}

// Emit evaluates an emit. A result of null or an absent optional is no event. Errors are as with [Program.Match].
func (p *Program) Emit(ctx context.Context, in Input) ([]Emitted, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	v = unwrap(v)
	vals := []ref.Val{v}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case traits.Lister:
		vals = vals[:0]
		for it := v.Iterator(); it.HasNext() == types.True; {
			vals = append(vals, it.Next())
		}
	}
	events := make([]Emitted, 0, len(vals))
	w := writer{room: maxOutput}
	for _, v := range vals {
		var e Emitted
		if named, ok := v.(*eventValue); ok {
			e.Type, e.Subject, v = named.name, named.subject, named.data
		}
		if _, ok := v.(traits.Mapper); !ok {
			return nil, p.wrongResult(v)
		}
		if err := w.value(v); err != nil {
			return nil, p.evalError(err)
		}
		e.Data = w.take()
		events = append(events, e)
	}
	return events, nil
}

// Key evaluates a key: a string as it is, an int in decimal digits, a bool as true or false. A result of null is [ErrAbsent].
// Errors are as with [Program.Match].
func (p *Program) Key(ctx context.Context, in Input) (string, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.run(ctx)
	if err != nil {
		return "", err
	}
	key, err := scalar(v)
	if err != nil {
		return "", p.evalError(err)
	}
	return key, nil
}

// scalar is the one text of a string, int or bool. An index takes more, see [canonical].
func scalar(v ref.Val) (string, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	case types.Null:
		return "", absent("the value is null")
	}
	return "", wrong("a " + typeName(v) + " where a string, an int or a bool is needed")
}

func (p *Program) wrongResult(v ref.Val) error {
	return &EvalError{Reason: "the result is of type " + typeName(v)}
}

func typeName(v ref.Val) string {
	if v == nil {
		return "none"
	}
	return v.Type().TypeName()
}

// evaluation is one run of a program: the variables that it sees and what it may still read. It belongs to one goroutine.
type evaluation struct {
	program *Program
	delta   *event.Delta
	of      *event.Object // object
	event   *aboutEvent   // in the place of both; nil: it is about a delta or object
	cache   Cache
	budget  *Budget
	group   []*event.Delta
	meter   meter
	done    <-chan struct{} // of the context; nil: it does not end
	turns   int             // rounds of loops; some of them look at done
	// interrupted: done was closed.
	interrupted bool
	cost        int // of the whole evaluation, once it has ended; at most the limit
	// The values of the variables, made at first use, and what was learned about where their fields are.
	object, oldObject, fed ref.Val // fed: `event`
	fields, oldFields      rootFields
}
