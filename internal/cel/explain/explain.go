// Package explain evaluates a filter conjunct by conjunct, to show why it matches or does not
// match.
package explain

import (
	"context"
	"errors"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/check"
)

// Conjunct is one of the terms that a filter joins with &&. A define that is a term is split too.
type Conjunct struct {
	Define       string // the define with its text; empty: the filter's own text
	Line, Column int    // position, counted as in [celerr.Issue]
	Text         string
}

// Finding is the result of a conjunct.
type Finding struct {
	Conjunct

	Holds bool
	// why it has no value, as with [cel.Program.Match]; its place is one in the text of the filter
	// or the define
	Err error
	// Operands are the sides of a comparison that are no constants.
	Operands []Operand
}

// Operand is one side of a comparison.
type Operand struct {
	Text string
	JSON []byte // its value
	Err  error  // why it has no value
}

// Explainer evaluates a filter, or a condition, conjunct by conjunct, to show why it matches or
// does not match. The filter itself decides the result: false && error is false. It is immutable
// and safe for concurrent use.
type Explainer struct {
	source string
	terms  []term
}

// term is a conjunct that can be evaluated by itself.
type term struct {
	Conjunct

	program  *cel.Program
	operands []term // without operands of their own
}

// New splits a [check.Filter] or [check.When] about the deltas of a source. The error is that of
// [cel.Env.Compile].
func New(env *cel.Env, text string, usage check.Usage, source string) (*Explainer, error) {
	if _, err := env.Compile(text, usage, source); err != nil {
		return nil, err
	}
	s := splitter{env: env, source: source, usage: usage}
	if err := s.split("", text); err != nil {
		return nil, err
	}
	return &Explainer{source, s.terms}, nil
}

// All evaluates every conjunct, in the order of the text, and the operands of comparisons.
func (x *Explainer) All(ctx context.Context, in cel.Input) []Finding {
	found := make([]Finding, len(x.terms))
	for i := range x.terms {
		t := &x.terms[i]
		found[i] = t.find(ctx, in)
		for j := range t.operands {
			o := &t.operands[j]
			value, err := o.program.Value(ctx, in)
			found[i].Operands = append(found[i].Operands, Operand{Text: o.Text, JSON: value, Err: o.placed(err)})
		}
	}
	return found
}

// Refusal returns the first conjunct that is false; if none is, the first without a value. False:
// all are true.
func (x *Explainer) Refusal(ctx context.Context, in cel.Input) (Finding, bool) {
	var failed *Finding
	for i := range x.terms {
		f := x.terms[i].find(ctx, in)
		switch {
		case f.Err == nil && !f.Holds:
			return f, true
		case f.Err != nil && failed == nil:
			failed = &f
		}
	}
	if failed != nil {
		return *failed, true
	}
	return Finding{}, false
}

func (t *term) find(ctx context.Context, in cel.Input) Finding {
	holds, err := t.program.Match(ctx, in)
	return Finding{Conjunct: t.Conjunct, Holds: holds, Err: t.placed(err)}
}

// placed converts the place of an error to one in the whole text.
func (t *term) placed(err error) error {
	failed, ok := errors.AsType[*celerr.EvalError](err)
	if !ok || failed.Define != "" || failed.Line == 0 {
		return err
	}
	moved := *failed
	moved.Define = t.Define
	if moved.Line == 1 {
		moved.Column += t.Column
	}
	moved.Line += t.Line - 1
	return &moved
}
