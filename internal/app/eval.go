package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
)

// expressionFile stands where problems have the name of a file.
const expressionFile = "expression"

// EvalError is why an expression that could be compiled has no value.
type EvalError struct{ config.Problems }

// Eval evaluates an expression without a cluster and returns its value as JSON. The error is config.Problems if the expression, or the
// configuration, has mistakes, and an EvalError if the expression has no value for this delta.
func Eval(ctx context.Context, text string, given Given) ([]byte, error) {
	o, err := openOffline(given)
	if err != nil {
		return nil, err
	}
	if len(o.names) > 1 {
		return nil, fmt.Errorf("several sources have such objects: say which it comes from with -source %s", strings.Join(o.names, ", or "))
	}
	source := o.names[0]
	program, err := o.env.Compile(text, expr.Value, source)
	if err != nil {
		var problems config.Problems
		for _, failed := range expr.CompileErrors(err) {
			for _, issue := range failed.Issues {
				problems = append(problems, o.place(text, failed.Define, issue.Line, issue.Column, issue.Message))
			}
		}
		return nil, problems
	}
	d, err := o.delta(source)
	if err != nil {
		return nil, err
	}
	value, err := program.Value(ctx, expr.Input{Delta: d})
	if failed, ok := errors.AsType[*expr.EvalError](err); ok {
		return nil, EvalError{config.Problems{o.place(text, failed.Define, failed.Line, failed.Column, failed.Reason)}}
	}
	return value, err
}

// place makes a problem of a place in the expression, or in the define that it uses.
func (o *offline) place(text, define string, line, column int, message string) config.Problem {
	if e, ok := o.cfg.Define[define]; ok {
		return e.Problem(max(1, line), column, message)
	}
	p := config.Problem{File: expressionFile, Message: message}
	if lines := strings.Split(text, "\n"); line > 0 && line <= len(lines) {
		p.Line, p.Column, p.Text = line, column+1, lines[line-1]
	}
	return p
}
