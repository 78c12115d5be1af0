package filters

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

// CELConfig is what a [CEL] filter is made of.
type CELConfig struct {
	Program *expr.Program
	Cache   expr.Cache // where the program looks things up; nil if it does not
	Log     *slog.Logger
	// Absent is called each time that the object lacks a field which the expression needs; nil: not wanted.
	Absent func()
	// Place says where in the configuration an evaluation failed, as file:line:column; nil: unknown.
	Place func(*expr.EvalError) string
}

// CEL is a filter that evaluates an expression, one for each route.
//
// A field that the object does not have means no match. It may be what the author wants, or a slip of the pen: it is counted each time,
// and logged the first time. What else can go wrong, the cost limit and types that do not fit, is an error and comes again.
type CEL struct {
	cfg    CELConfig
	logged atomic.Bool
}

// NewCEL makes a filter.
func NewCEL(cfg CELConfig) *CEL { return &CEL{cfg: cfg} }

// Match implements [Filter].
func (f *CEL) Match(ctx context.Context, d *event.Delta) (bool, error) {
	ok, err := f.cfg.Program.Match(ctx, expr.Input{Delta: d, Cache: f.cfg.Cache})
	if err == nil || !errors.Is(err, expr.ErrAbsent) {
		return ok, err
	}
	if f.cfg.Absent != nil {
		f.cfg.Absent()
	}
	if f.cfg.Log != nil && f.logged.CompareAndSwap(false, true) {
		f.cfg.Log.Info("an object lacks a field that the filter needs, so it does not match; write has(), or .? with orValue(), if that is not meant",
			slog.String("at", f.place(err)), slog.String("delta", d.String()), slog.Any("reason", err))
	}
	return false, nil
}

func (f *CEL) place(err error) string {
	var at *expr.EvalError
	if f.cfg.Place == nil || !errors.As(err, &at) {
		return ""
	}
	return f.cfg.Place(at)
}
