// Package celerr has the errors of compiling and evaluating expressions. None of them quotes a
// value of an object.
package celerr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// CompileErrors returns the parts of an error of [cel.NewEnv] or [cel.Env.Compile]. It is empty
// for other errors.
func CompileErrors(err error) []*CompileError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*CompileError
		for _, e := range joined.Unwrap() {
			all = append(all, CompileErrors(e)...)
		}
		return all
	}
	if e, ok := errors.AsType[*CompileError](err); ok {
		return []*CompileError{e}
	}
	return nil
}

// These errors are the reasons why an evaluation had no result; check them with errors.Is. An error
// that is none of them, nor the context's, concerns a type or a value: the same object causes it
// again each time.
var (
	// ErrAbsent: a field, key or element that the expression needs is not there.
	ErrAbsent = errors.New("absent")
	// ErrCost: the evaluation was stopped because of too many steps or reads.
	ErrCost = errors.New("too expensive")
	// ErrNoCache: a look-up without an [cel.Input].Cache.
	ErrNoCache = errors.New("no cache")
)

// Issue is one mistake in the text of an expression.
type Issue struct {
	Line    int // from 1
	Column  int // from 0, in code points
	Message string
}

// CompileError has all mistakes of an expression, in the order of the text.
type CompileError struct {
	// the name of the define with the issues; empty: the compiled text itself
	Define string
	Source string // the source for which it is wrong; empty: all sources of the expression
	Issues []Issue
}

// Error lists the issues as line:column: message. Its columns are counted from 1, as in editors.
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

// EvalError is the reason why an evaluation had no result. It has places of the expression and no
// values of an object.
type EvalError struct {
	Define string // the define that the place is in; empty: the expression itself
	// the source of the expression, if each source has its own, see [cel.BySource]
	Source       string
	Line, Column int // position in the text, counted as in [Issue]; Line 0: unknown
	Reason       string

	Class error // ErrAbsent, ErrCost, the context's error or nil
}

// Error returns the place and the reason.
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

// Unwrap returns the class of the error: [ErrAbsent], [ErrCost], [ErrNoCache], the error of the
// context, or nil.
func (e *EvalError) Unwrap() error { return e.Class }

// Join makes one error of several *[CompileError].
func Join(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Reason is an error of our own: its text has no value of an object and may be shown. Class is as
// in [EvalError].
type Reason struct {
	Text  string
	Class error
}

func (e Reason) Error() string { return e.Text }
func (e Reason) Unwrap() error { return e.Class }

// Wrong returns an error of type or value.
func Wrong(reason string) error { return Reason{Text: reason} }

// Absent returns an error about an absent value.
func Absent(reason string) error { return Reason{reason, ErrAbsent} }

// TooMuch returns an error about a result that would be too large.
func TooMuch(reason string) error { return Reason{reason, ErrCost} }

// NoOverload is the value of a function that does not accept its arguments.
func NoOverload(function string) ref.Val { return types.NewErr("no such overload: %s", function) }
