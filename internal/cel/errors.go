package cel

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
)

type (
	// Issue is a mistake in an expression, with its place.
	Issue = celerr.Issue
	// CompileError is the error of an expression that does not compile.
	CompileError = celerr.CompileError
	// EvalError is the error of an evaluation.
	EvalError = celerr.EvalError
)

// See package celerr.
var (
	ErrAbsent  = celerr.ErrAbsent
	ErrCost    = celerr.ErrCost
	ErrNoCache = celerr.ErrNoCache
)

// CompileErrors is [celerr.CompileErrors].
func CompileErrors(err error) []*CompileError { return celerr.CompileErrors(err) }

// cel-go shares these two errors among all programs and evaluations, and writes the place of the
// first use into them. Setting a place before any program runs prevents a data race.
var (
	_ = types.LabelErrNode(-1, types.NoSuchOverloadErr())
	_ = types.LabelErrNode(-1, types.Int(math.MaxInt64).ConvertToType(types.TimestampType))
)

// resolutionError is the type of cel-go's errors for missing keys, indexes and attributes. cel-go
// does not export the type.
func resolutionError(attributes interpreter.AttributeFactory) reflect.Type {
	_, err := attributes.AbsoluteAttribute(1, "absent").Resolve(interpreter.EmptyActivation())
	return reflect.TypeOf(err)
}

// evalError makes an EvalError of an error of cel-go. cel-go's may quote values, an EvalError does
// not.
func (p *Program) evalError(err error) error {
	out := &celerr.EvalError{Source: p.own}
	var celErr *types.Err
	if errors.As(err, &celErr) && celErr.NodeID() >= 0 {
		out.Define, out.Line, out.Column = p.linked.Texts.Place(celErr.NodeID())
	}
	out.Reason, out.Class = p.reason(err)
	if out.Reason == misfit && celErr != nil {
		out.Reason = p.unfit(celErr.NodeID())
	}
	return out
}

// misfit is the reason of an error that may quote a value of an object.
const misfit = "a value has the wrong type or form"

// longestOperand is the number of bytes of an expression that a reason quotes.
const longestOperand = 200

// unfit is [misfit] with the operand that a conversion does not accept: the reason has the text of
// the operand, not its value.
func (p *Program) unfit(id int64) string {
	u, offset, ok := p.linked.Texts.Origin(id)
	if !ok {
		return misfit
	}
	tree := u.AST.NativeRep()
	for _, call := range ast.MatchDescendants(ast.NavigateAST(tree), func(e ast.NavigableExpr) bool { return check.IsConversion(e) }) {
		if at, ok := tree.SourceInfo().GetOffsetRange(call.ID()); !ok || at.Start != offset {
			continue
		}
		operand, err := parser.Unparse(call.AsCall().Args()[0], tree.SourceInfo())
		if err != nil || len(operand) > longestOperand {
			return misfit
		}
		return fmt.Sprintf("%s is not what %s() takes", operand, call.AsCall().FunctionName())
	}
	return misfit
}

func (p *Program) reason(err error) (string, error) {
	if cancelled, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Sprintf("stopped at the limit of %d for one evaluation", p.limit), celerr.ErrCost
	}
	if own, ok := errors.AsType[celerr.Reason](err); ok {
		return own.Text, own.Class
	}
	cause := err
	for errors.Unwrap(cause) != nil {
		cause = errors.Unwrap(cause)
	}
	text := cause.Error()
	switch {
	case reflect.TypeOf(cause) == p.env.resolutionError:
		return missing(text, p.names), celerr.ErrAbsent
	case text == types.OptionalNone.GetValue().(*types.Err).Error():
		return "value() of an absent optional", celerr.ErrAbsent
	case strings.HasPrefix(text, "internal error"):
		return "internal error: a function panicked during the evaluation", nil
	case strings.HasPrefix(text, "no such overload"):
		return "no such overload: an operator or function does not take a value of this type", nil
	}
	if slices.Contains(harmlessReasons(), text) {
		return text, nil
	}
	return misfit, nil
}

// harmlessReasons are texts of cel-go's errors that never have a value of an object.
func harmlessReasons() []string {
	return []string{
		"division by zero", "modulus by zero", "integer overflow", "unsigned integer overflow", "duration overflow",
		"timestamp overflow",
	}
}

// missing describes the absent key or field. The text may end in a computed key, which may be a
// value of an object: the key is quoted only if it is one of the names in the expression.
func missing(text string, names []string) string {
	if key, ok := strings.CutPrefix(text, "no such key: "); ok {
		if slices.Contains(names, key) {
			return fmt.Sprintf("no such key: %q", key)
		}
		return "no such key"
	}
	if strings.HasPrefix(text, "index out of bounds") {
		return "index out of bounds"
	}
	return "no such key or index"
}
