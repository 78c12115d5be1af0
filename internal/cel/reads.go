package cel

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/internal/cel/fieldpath"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/readset"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// estimate records the possible cost of the linked tree, and the fields that it reads.
func (p *Program) estimate(tree *cel.Ast) error {
	var root *schema.Type
	if p.info != nil {
		root = p.info.Schema
	}
	e, err := cost.New(p.scope.CEL, tree, root, p.limit)
	if err != nil {
		return err
	}
	p.noteReads(e.Reads)
	if !e.TooMuch() {
		return nil
	}
	p.costly = &check.Warning{Excessive: e.Excessive()}
	if id, ok := e.Costliest(); ok {
		p.costly.Define, p.costly.Line, p.costly.Column = p.linked.Texts.Place(id)
	}
	p.costly.Line = max(1, p.costly.Line)
	p.costly.Message = e.Message()
	return nil
}

// noteReads records the fields that the linked tree reads.
func (p *Program) noteReads(reads map[int64][]string) {
	for _, id := range slices.Sorted(maps.Keys(reads)) {
		path := reads[id]
		if len(path) < 2 || path[0] != syntax.VarObject && path[0] != syntax.VarOldObject {
			continue
		}
		r := check.Read{Path: slices.DeleteFunc(slices.Clone(path[1:]), func(step string) bool { return strings.HasPrefix(step, "@") })}
		r.Define, r.Line, r.Column = p.linked.Texts.Place(id)
		if r.Line > 0 {
			r.Line, r.Column = syntax.AfterDot(p.linked.Texts.Content(r.Define), r.Line, r.Column)
			p.reads = append(p.reads, r)
		}
	}
}

// Reads returns the places at which the expression reads the field of the object at a path like
// status.conditions, or a field inside of it. A list on the way is no step of the path.
func (p *Program) Reads(text string) (places []check.Warning) {
	parsed, err := fieldpath.Parse(text)
	if err != nil {
		return nil // reported already
	}
	var path []string
	for _, s := range parsed {
		if !s.All {
			path = append(path, s.Key)
		}
	}
	for _, r := range p.reads {
		if len(r.Path) >= len(path) && slices.Equal(r.Path[:len(path)], path) {
			w := check.Warning{Define: r.Define}
			w.Line, w.Column = r.Line, r.Column
			places = append(places, w)
		}
	}
	return places
}

// Fields returns the fields of objects that the expression reads, by their source: those of object
// and oldObject, and of the objects that it looks up. A field outside of them does not change the
// result. of has the sources of the expression's own objects.
func Fields(p *Program, of ...string) map[string]kept.Set {
	all := make(map[string]kept.Set)
	if p.others != nil {
		for source, other := range p.others {
			addFields(other, all, []string{source})
		}
		return all
	}
	addFields(p, all, of)
	return all
}

func addFields(p *Program, all map[string]kept.Set, of []string) {
	read := readset.Of(readset.Expression{Tree: p.linked.Tree.NativeRep(), Changed: p.linked.Paths, Owners: p.env.names.Owners, Named: p.usage == Objects})
	for source, fields := range read {
		sources := of
		if source != readset.Own {
			sources = []string{source}
		}
		for _, name := range sources {
			all[name] = all[name].Or(fields)
		}
	}
	for _, name := range p.linked.Indexes {
		source, index, _ := strings.Cut(name, ".")
		all[source] = all[source].Or(readset.Indexed(index))
	}
}

// IsState reports whether the expression concerns the present status of the object alone: it then
// holds for a while, and is no change.
func (p *Program) IsState() bool {
	if len(p.reads) == 0 || len(p.sources) > 0 || len(p.linked.Paths) > 0 || len(p.others) > 0 {
		return false
	}
	for _, u := range p.linked.Texts.Units {
		only := true
		syntax.Walk(u.AST.NativeRep().Expr(), nil, func(e ast.Expr, local []string) {
			if e.Kind() == ast.IdentKind && !slices.Contains(local, e.AsIdent()) {
				_, define := p.env.checker.Define(e.AsIdent())
				only = only && (define || e.AsIdent() == syntax.VarObject)
			}
		})
		if !only {
			return false
		}
	}
	return !slices.ContainsFunc(p.reads, func(r check.Read) bool { return r.Path[0] != "status" })
}

// Reader reads an object for several indexes, one after the other: positions of fields found for
// one index are reused for the next. The zero Reader is ready for use. It belongs to one goroutine.
type Reader struct {
	in evaluation
}

// Reset sets the next object to read; nil: none.
func (r *Reader) Reset(obj *event.Object) { r.in = evaluation{of: obj} }

// Keys appends the result of [Program.Keys].
func (r *Reader) Keys(keys []string, p *Program) ([]string, error) {
	if was := r.in.program; was == nil || was.info != p.info {
		r.in = evaluation{of: r.in.of}
	}
	r.in.program, r.in.run.Meter = p, jsonval.NewMeter(p.limit*cost.WorkPerCost)
	v, err := r.in.runToEnd()
	if err != nil {
		return keys, err
	}
	all, err := jsonval.AppendKeys(keys, jsonval.Unwrap(v))
	if err != nil {
		return keys, p.evalError(err)
	}
	return all, nil
}

// Field is [equality.Field.ReadIn].
func (r *Reader) Field(f *equality.Field) (value string, reading equality.Reading) {
	return f.ReadVia(&r.in.fields, r.in.of)
}
