package expr

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Ref is an object that an expression has found.
type Ref struct {
	Key event.Key
	UID string
}

// CompileObjects compiles an expression about the deltas of a source whose result is objects of others, those of the sources of. Errors are
// those of [Env.Compile].
func (e *Env) CompileObjects(text, source string, of ...string) (*Program, error) {
	p, err := e.Compile(text, Objects, source)
	if err != nil {
		return nil, err
	}
	t := p.units[len(p.units)-1].ast.OutputType()
	if t.Kind() == types.ListKind && len(t.Parameters()) == 1 {
		t = t.Parameters()[0]
	}
	if t.Kind() != types.StructKind {
		return p, nil
	}
	for _, name := range of {
		if s := e.shapes[name]; s == nil || e.types.celOf[s.of].TypeName() == t.TypeName() {
			return p, nil
		}
	}
	return nil, &CompileError{Issues: []Issue{{Line: 1, Message: fmt.Sprintf(
		"these are objects of type %s, not of %s; an index is that of %s unless its source stands before it, as in \"%s.namespace\"",
		cel.FormatCELType(t), strings.Join(of, " or "), source, of[0])}}}
}

// isObjects reports whether a result of this type may be objects.
func isObjects(t *cel.Type) bool {
	if t.Kind() != types.ListKind || len(t.Parameters()) != 1 {
		return t.Kind() == types.StructKind || t.Kind() == types.ListKind
	}
	switch t = unwrapOptional(t.Parameters()[0]); t.Kind() {
	case types.StructKind, types.DynKind, types.TypeParamKind:
		return true
	default:
		return false
	}
}

// Objects evaluates an expression of [Env.CompileObjects]: the objects that it results in. null, and an absent optional, is none. Errors are
// as with [Program.Match].
func (p *Program) Objects(ctx context.Context, in Input) ([]Ref, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	list, ok := unwrap(v).(traits.Lister)
	if !ok {
		found, err := p.object(nil, v)
		return found, err
	}
	var found []Ref
	for it := list.Iterator(); it.HasNext() == types.True; {
		if found, err = p.object(found, it.Next()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p *Program) object(found []Ref, v ref.Val) ([]Ref, error) {
	v = unwrap(v)
	if _, none := v.(types.Null); none {
		return found, nil
	}
	m, ok := v.(*mapValue)
	if !ok {
		return nil, p.wrongResult(v)
	}
	metadata := member(m.open, "metadata")
	field := func(name string) string {
		if open := member(metadata, name); open != "" {
			return closed(open).Str()
		}
		return ""
	}
	key := event.Key{Namespace: field("namespace"), Name: field("name")}
	if key.Name == "" {
		return nil, &EvalError{Reason: "the result is a map that is no object"}
	}
	return append(found, Ref{key, field("uid")}), nil
}
