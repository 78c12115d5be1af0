package expr

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
)

// These errors tell why an evaluation had no result; find out with errors.Is. An error that is neither, nor the context's, is of
// type or value: it comes back each time with the same object.
var (
	// ErrAbsent: a field, key or element that the expression needs is not there.
	ErrAbsent = errors.New("absent")
	// ErrCost: the evaluation was ended because it took too many steps or read too much.
	ErrCost = errors.New("too expensive")
	// ErrNoCache: other objects were looked up without an [Input].Cache.
	ErrNoCache = errors.New("no cache")
)

// Issue is one mistake in the text of an expression.
type Issue struct {
	Line    int // from 1
	Column  int // from 0, in code points
	Message string
}

// CompileError is why an expression cannot be used: all its mistakes at once, in the order of the text.
type CompileError struct {
	Define string // the name of the define whose text the issues are about; empty: the text that was to be compiled
	Source string // the source for which it is wrong; empty: for all that it is compiled for
	Issues []Issue
}

// Error lists the issues as line:column: message. Columns are counted from 1 there, as editors do.
func (e *CompileError) Error() string {
	var b strings.Builder
	for i, issue := range e.Issues {
		if i > 0 {
			b.WriteString("; ")
		}
		if e.Define != "" {
			fmt.Fprintf(&b, "define %s: ", e.Define)
		}
		fmt.Fprintf(&b, "%d:%d: %s", issue.Line, issue.Column+1, issue.Message)
	}
	return b.String()
}

// EvalError is why an evaluation had no result. It names places of the expression but quotes nothing of an object.
type EvalError struct {
	Define       string // the define that the place is in; empty: the expression itself
	Source       string // the source whose expression it was, if each has its own, see [BySource]
	Line, Column int    // where in the text, counted as in [Issue]; Line 0: not known
	Reason       string

	class error // ErrAbsent, ErrCost, the context's error or nil
}

// Error is the place and the reason.
func (e *EvalError) Error() string {
	var b strings.Builder
	if e.Define != "" {
		fmt.Fprintf(&b, "define %s: ", e.Define)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column+1)
	}
	return b.String() + e.Reason
}

// Unwrap returns what kind of error it is: [ErrAbsent], [ErrCost], [ErrNoCache], the error of the context, or nil.
func (e *EvalError) Unwrap() error { return e.class }

// reasonError is an error of our own: its text holds no value of an object and may be shown. class is as in [EvalError].
type reasonError struct {
	reason string
	class  error
}

func (e reasonError) Error() string { return e.reason }
func (e reasonError) Unwrap() error { return e.class }

// wrong is an error of type or value.
func wrong(reason string) error { return reasonError{reason: reason} }

// absent is an error about something that is not there.
func absent(reason string) error { return reasonError{reason, ErrAbsent} }

// tooMuch is an error about a result that would be too large.
func tooMuch(reason string) error { return reasonError{reason, ErrCost} }

// These two errors cel-go shares among all programs and evaluations, and writes the place of the first that meets one into it. Giving
// them a place before anything runs keeps that from being a data race.
var (
	_ = types.LabelErrNode(-1, types.NoSuchOverloadErr())
	_ = types.LabelErrNode(-1, types.Int(math.MaxInt64).ConvertToType(types.TimestampType))
)

// joinErrors makes one error of several *[CompileError].
func joinErrors(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// resolutionError is the type of cel-go's errors for keys, indexes and attributes that are not there. cel-go does not export
// it, but hands it out.
func resolutionError(attributes interpreter.AttributeFactory) reflect.Type {
	_, err := attributes.AbsoluteAttribute(1, "absent").Resolve(interpreter.EmptyActivation())
	return reflect.TypeOf(err)
}

// evalError turns an error of cel-go, which may quote values, into one of ours, which does not.
func (p *Program) evalError(err error) error {
	out := &EvalError{Source: p.own}
	var celErr *types.Err
	if errors.As(err, &celErr) && celErr.NodeID() >= 0 {
		out.Define, out.Line, out.Column = p.place(celErr.NodeID())
	}
	out.Reason, out.class = p.reason(err)
	return out
}

func (p *Program) reason(err error) (string, error) {
	if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Sprintf("stopped at the limit of %d for one evaluation", p.limit), ErrCost
	}
	if own, ok := errors.AsType[reasonError](err); ok {
		return own.reason, own.class
	}
	cause := err
	for errors.Unwrap(cause) != nil {
		cause = errors.Unwrap(cause)
	}
	text := cause.Error()
	switch {
	case reflect.TypeOf(cause) == p.env.resolutionError:
		return p.missing(text), ErrAbsent
	case text == types.OptionalNone.GetValue().(*types.Err).Error():
		return "value() of an absent optional", ErrAbsent
	case strings.HasPrefix(text, "internal error"):
		return "internal error: something that the evaluation called has panicked", nil
	case strings.HasPrefix(text, "no such overload"):
		return "no such overload: an operator or function does not take a value of this type", nil
	}
	if slices.Contains(harmlessReasons(), text) {
		return text, nil
	}
	return "a value is not of the type or form that is needed here", nil
}

// harmlessReasons are texts of cel-go's errors that are known to hold no value of an object.
func harmlessReasons() []string {
	return []string{
		"division by zero", "modulus by zero", "integer overflow", "unsigned integer overflow", "duration overflow",
		"timestamp overflow",
	}
}

// missing describes what is not there. The text may end in a computed key, which may be a value of an object: a key is named only
// if it stands in the expression.
func (p *Program) missing(text string) string {
	if key, ok := strings.CutPrefix(text, "no such key: "); ok {
		if slices.Contains(p.names, key) {
			return fmt.Sprintf("no such key: %q", key)
		}
		return "no such key"
	}
	if strings.HasPrefix(text, "index out of bounds") {
		return "index out of bounds"
	}
	return "no such key or index"
}
