package filters

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/expr"
	"github.com/deltarouter/deltarouter/internal/expr/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// CELConfig is what a [CEL] filter is made of.
type CELConfig struct {
	Program *expr.Program
	Cache   expr.Cache // where the program looks things up; nil if it does not
	Log     *slog.Logger
	// Absent is called each time that the object lacks a field which the expression needs; nil: not
	// wanted.
	Absent func()
	// Place says where in the configuration an evaluation failed, as file:line:column; nil:
	// unknown.
	Place func(*expr.EvalError) string
}

// CEL is a filter that evaluates an expression, one for each route.
//
// A field that the object does not have means no match. It may be what the author wants, or a slip
// of the pen: it is counted each time, and logged the first time. What else can go wrong, the cost
// limit and types that do not fit, is an error and comes again.
//
// Conditions that compare a field with constants, joined with the rest by &&, are looked at first,
// wherever they stand in the text, and without evaluating anything. That gives the answer that
// evaluating gives, by these rules:
//
//   - One of them is false: no match. In CEL, && is false if one side is, in whatever order they
//     stand, and whatever is wrong with the other side, so there is no error to hide. (The cost
//     limit is not a matter of CEL: what is not evaluated costs nothing.)
//   - One of them is about a missing field, and nothing but such conditions stands before it: no
//     match, and counted. An evaluation would come to the missing field first, and no right side
//     could make it true. It would not be counted if the rest of the filter was false; that is the
//     one difference, and the same one whether a [Table] or the filter alone was asked.
//   - All of them are true, and there is no rest: match.
//   - Else the expression is evaluated: a value of another kind than the constant's, and a missing
//     field behind something that may fail.
type CEL struct {
	cfg        CELConfig
	equalities []equality.Equality
	rest       bool
	logged     atomic.Bool
}

// NewCEL makes a filter.
func NewCEL(cfg CELConfig) *CEL {
	f := &CEL{cfg: cfg}
	f.equalities, f.rest = cfg.Program.Conjuncts()
	return f
}

// Match implements [Filter].
func (f *CEL) Match(ctx context.Context, d *event.Delta) (bool, error) {
	r := readings{delta: d}
	switch f.judge(&r, nil) {
	case no:
		return false, nil
	case yes:
		return true, nil
	case unknown:
	}
	return f.settle(d, f.evaluate(ctx, d, nil))
}

// answer is the result of an evaluation.
type answer struct {
	ok  bool
	err error
}

// evaluate asks the expression, whatever the equalities say.
func (f *CEL) evaluate(ctx context.Context, d *event.Delta, budget *expr.Budget) answer {
	ok, err := f.cfg.Program.Match(ctx, expr.Input{Delta: d, Cache: f.cfg.Cache, Budget: budget})
	return answer{ok, err}
}

// settle makes an absent field no match. The answer may be about a filter that is equal to this
// one.
func (f *CEL) settle(d *event.Delta, a answer) (bool, error) {
	if a.err == nil || !errors.Is(a.err, expr.ErrAbsent) {
		return a.ok, a.err
	}
	if f.absent() {
		f.log(d, a.err)
	}
	return false, nil
}

// absent counts a field that is missing, and reports whether it is to be logged.
func (f *CEL) absent() bool {
	if f.cfg.Absent != nil {
		f.cfg.Absent()
	}
	// a load is cheaper than an exchange
	return f.cfg.Log != nil && !f.logged.Load() && f.logged.CompareAndSwap(false, true)
}

func (f *CEL) log(d *event.Delta, err error) {
	f.cfg.Log.Info("an object lacks a field that the filter needs, so it does not match; write has(), or .? with orValue(), if that is not meant",
		slog.String("at", f.place(err)), slog.String("delta", d.String()), slog.Any("err", err))
}

func (f *CEL) place(err error) string {
	var at *expr.EvalError
	if f.cfg.Place == nil || !errors.As(err, &at) {
		return ""
	}
	return f.cfg.Place(at)
}

// Filter decides whether a route wants a delta. It is safe for concurrent use.
type Filter interface {
	// Match reports whether the route wants d. An error says that it cannot be told, and that
	// asking again gives the same error: the route treats the delta as rejected. A field that the
	// object does not have is no error but no match.
	Match(ctx context.Context, d *event.Delta) (bool, error)
}

// Func makes a Filter of a function.
type Func func(ctx context.Context, d *event.Delta) (bool, error)

// Match implements [Filter].
func (f Func) Match(ctx context.Context, d *event.Delta) (bool, error) { return f(ctx, d) }
