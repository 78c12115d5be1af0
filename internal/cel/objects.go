package cel

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Ref is an object that an expression has found.
type Ref struct {
	Key event.Key
	UID string
}

// CompileObjects compiles an expression about the deltas of a source whose result is objects of the
// sources of. Errors are those of [Env.CompileWithin].
func (e *Env) CompileObjects(effort *Effort, text, source string, of ...string) (*Program, error) {
	p, err := e.CompileWithin(effort, text, check.Objects, source)
	if err != nil {
		return nil, err
	}
	t := p.linked.Texts.Main().AST.OutputType()
	if t.Kind() == types.ListKind && len(t.Parameters()) == 1 {
		t = t.Parameters()[0]
	}
	if t.Kind() != types.StructKind {
		return p, nil
	}
	for _, name := range of {
		if s := e.checker.Infos[name]; s == nil || e.checker.Types.CELType(s.Schema).TypeName() == t.TypeName() {
			return p, nil
		}
	}
	return nil, &celerr.CompileError{Issues: []celerr.Issue{{Line: 1, Message: fmt.Sprintf(
		"these are objects of type %s, not of %s; an index is that of %s unless its source stands before it, as in \"%s.namespace\"",
		cel.FormatCELType(t), strings.Join(of, " or "), source, of[0])}}}
}

// Objects evaluates an expression of [Env.CompileObjects] and returns the objects. null, and an
// absent optional, is none. Errors are as with [Program.Match].
func (p *Program) Objects(ctx context.Context, in Input) ([]Ref, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	list, ok := jsonval.Unwrap(v).(traits.Lister)
	if !ok {
		found, err := appendRef(nil, v)
		return found, err
	}
	var found []Ref
	for it := list.Iterator(); it.HasNext() == types.True; {
		if found, err = appendRef(found, it.Next()); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// appendRef appends the object of a value; null and an absent optional are none.
func appendRef(found []Ref, v ref.Val) ([]Ref, error) {
	v = jsonval.Unwrap(v)
	if _, none := v.(types.Null); none {
		return found, nil
	}
	m, ok := v.(*jsonval.Map)
	if !ok {
		return nil, wrongResult(v)
	}
	key := event.Key{Namespace: m.Str("metadata", "namespace"), Name: m.Str("metadata", "name")}
	if key.Name == "" {
		return nil, &celerr.EvalError{Reason: "the result is a map that is no object"}
	}
	return append(found, Ref{key, m.Str("metadata", "uid")}), nil
}
