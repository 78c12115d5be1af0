package cel

import (
	"context"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/deltarouter/deltarouter/internal/cel/builtin"
	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Value evaluates an expression of any type and returns the result as compact JSON: null for an
// absent optional. Errors are as with [Program.Match]; a result that has no JSON is an error of
// type.
func (p *Program) Value(ctx context.Context, in Input) ([]byte, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	return p.json(v)
}

// json writes a result.
func (p *Program) json(v ref.Val) ([]byte, error) {
	w := jsonval.NewWriter()
	if err := w.Value(builtin.Shown(jsonval.Unwrap(v))); err != nil {
		return nil, p.evalError(err)
	}
	return w.Take(), nil
}

// Match evaluates a filter. Errors: errors.Is [celerr.ErrAbsent] or [celerr.ErrCost], the
// context's, or one of type; all are *[celerr.EvalError].
func (p *Program) Match(ctx context.Context, in Input) (bool, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.evaluate(ctx)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, wrongResult(v)
	}
	return bool(b), nil
}

// Keys evaluates an index: the keys of the object in it, see [jsonval.Canonical]. Each element of a
// list is a key, and each key of a map. null, an absent optional, "" and empty lists and maps give
// no keys. Errors are as with [Program.Match].
func (p *Program) Keys(obj *event.Object) ([]string, error) {
	r := Reader{in: evaluation{of: obj}}
	return r.Keys(nil, p)
}

// Emitted is an event that an emit makes.
type Emitted struct {
	Type, Subject string // empty: as by default
	Data          []byte // a JSON object
}

// Emit evaluates an emit. A result of null or an absent optional is no event. Errors are as with
// [Program.Match].
func (p *Program) Emit(ctx context.Context, in Input) ([]Emitted, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	v = jsonval.Unwrap(v)
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
	w := jsonval.NewWriter()
	for _, v := range vals {
		var e Emitted
		if named, ok := v.(*builtin.Event); ok {
			e.Type, e.Subject, v = named.Name, named.Subject, named.Data
		}
		if _, ok := v.(traits.Mapper); !ok {
			return nil, wrongResult(v)
		}
		if err := w.Value(v); err != nil {
			return nil, p.evalError(err)
		}
		e.Data = w.Take()
		events = append(events, e)
	}
	return events, nil
}

// Key evaluates a key: a string as it is, an int in decimal digits, a bool as true or false. A
// result of null is [celerr.ErrAbsent]. Errors are as with [Program.Match].
func (p *Program) Key(ctx context.Context, in Input) (string, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.evaluate(ctx)
	if err != nil {
		return "", err
	}
	key, err := jsonval.Scalar(v)
	if err != nil {
		return "", p.evalError(err)
	}
	return key, nil
}

func wrongResult(v ref.Val) error {
	return &celerr.EvalError{Reason: "the result is of type " + jsonval.TypeName(v)}
}
