package filters

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/equality"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// CELConfig is the configuration of a [CEL] filter. It is for the router itself: the program comes
// from its compiler. Other programs use [Compile].
type CELConfig struct {
	Program *cel.Program
	Cache   Cache // the cache for look-ups of the program; nil: it has none
	Log     *slog.Logger
	// Absent is called with a number of deltas whose objects lack a field of the expression: at
	// once, or by [Table.Skipped]. May be nil.
	Absent func(deltas uint64)
	// Place returns the position of a failure in the configuration, as file:line:column; empty: it
	// is not known. May be nil.
	Place func(err error) string
}

// Cache answers the look-ups of other objects in expressions.
type Cache interface {
	// Lookup returns the objects of a source that an index has under value; index "": all. The
	// slice is not modified.
	Lookup(source, index, value string) []*event.Object
	// Count returns the number of objects that Lookup would return.
	Count(source, index, value string) int
	// Get returns an object or nil.
	Get(source, namespace, name string) *event.Object
}

// CEL is a filter that evaluates a CEL expression. Each route has its own.
//
// If the object lacks a field, the filter does not match. The author may intend this, or may have
// mistyped the field, so each case is counted and the first one is logged. All other failures, such
// as the cost limit or a wrong type, are permanent errors.
//
// Conditions that compare a field with constants, and that && joins with the rest, are tested
// first, without an evaluation of the expression. The result is that of the evaluation:
//
//   - One of them is false: no match. In CEL, && is false if one side is false, in any order and
//     regardless of errors of the other side. (The cost limit is not part of CEL.)
//   - One of them reads a missing field, and only such conditions precede it: no match, and the
//     missing field is counted. The evaluation would reach the missing field first, and no later
//     condition could make the result true. There is one difference: the evaluation would not count
//     the field if a later condition is false. A [Table] and a single filter behave alike here.
//   - All of them are true, and there are no other conditions: match.
//   - Otherwise the expression is evaluated. Examples are a value of another type than the
//     constant, and a missing field after a condition that may fail.
type CEL struct {
	cfg        CELConfig
	cache      cel.Cache // that of cfg, converted once
	equalities []equality.Equality
	rest       bool
	logged     atomic.Bool
}

// NewCEL makes a filter.
func NewCEL(cfg CELConfig) *CEL {
	f := &CEL{cfg: cfg, cache: cfg.Cache}
	f.equalities, f.rest = cfg.Program.Conjuncts()
	return f
}

// Match implements [Filter].
func (f *CEL) Match(ctx context.Context, d *event.Delta) (bool, error) {
	r := readings{delta: d}
	switch f.testEqualities(&r, nil) {
	case no:
		return false, nil
	case yes:
		return true, nil
	case unknown:
	}
	return f.absentIsFalse(d, f.evaluate(ctx, d, nil))
}

// answer is the result of an evaluation.
type answer struct {
	ok  bool
	err error
}

// evaluate evaluates the whole expression, without a test of the equalities.
func (f *CEL) evaluate(ctx context.Context, d *event.Delta, budget *cel.Budget) answer {
	ok, err := f.cfg.Program.Match(ctx, cel.Input{Delta: d, Cache: f.cache, Budget: budget})
	return answer{ok, err}
}

// absentIsFalse turns the error of a missing field into no match. The answer may come from an equal
// filter.
func (f *CEL) absentIsFalse(d *event.Delta, a answer) (bool, error) {
	if a.err == nil || !errors.Is(a.err, cel.ErrAbsent) {
		return a.ok, a.err
	}
	if f.absent() {
		f.log(d, a.err)
	}
	return false, nil
}

// absent counts a missing field, and reports whether to log it.
func (f *CEL) absent() bool {
	f.count(1)
	// a load is cheaper than an exchange
	return f.cfg.Log != nil && !f.logged.Load() && f.logged.CompareAndSwap(false, true)
}

// count counts deltas whose objects lack a field.
func (f *CEL) count(deltas uint64) {
	if f.cfg.Absent != nil {
		f.cfg.Absent(deltas)
	}
}

func (f *CEL) log(d *event.Delta, err error) {
	f.cfg.Log.Info("an object lacks a field that the filter needs, so it does not match; write has(), or .? with orValue(), if that is not intended",
		slog.String("at", f.place(err)), slog.String("delta", d.String()), slog.Any("err", err))
}

func (f *CEL) place(err error) string {
	if f.cfg.Place == nil {
		return ""
	}
	return f.cfg.Place(err)
}

// Filter decides whether a route wants a delta. It is safe for concurrent use.
type Filter interface {
	// Match reports whether the route wants d.
	//
	//   - A field that the object lacks: false without an error.
	//   - An error: the filter cannot decide, and a repetition would fail in the same way. The
	//     route rejects the delta.
	Match(ctx context.Context, d *event.Delta) (bool, error)
}

// Func is a function that implements [Filter].
type Func func(ctx context.Context, d *event.Delta) (bool, error)

// Match implements [Filter].
func (f Func) Match(ctx context.Context, d *event.Delta) (bool, error) { return f(ctx, d) }
