// Package explain shows without a cluster how a configuration handles one delta: the decision of
// each route with its reasons, and the value of an expression. It runs no handler and writes to no
// sink.
package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/explain"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The results of a Test and the verdicts about a route.
const (
	Yes     = "true"
	No      = "false"
	Absent  = "absent"  // a field is absent, so there is no match
	Unknown = "unknown" // it depends on other objects of the cluster
	Fails   = "error"   // the evaluation failed; onFailure applies

	Matches      = "match"
	MatchesNot   = "no match"
	MatchUnknown = "unknown"
	MatchFails   = "error"
	Suppressed   = "suppressed" // by a limit, see router tap
	GivenUp      = "given up"   // its handler or a sink refused it

	Holds    = "holds" // for a route with a condition
	HoldsNot = "does not hold"
)

// Explanation has the decisions of all routes about a delta.
type Explanation struct {
	Delta  string             `json:"delta"`  // updated pods default/web-0
	Source string             `json:"source"` // the source of the delta
	Routes []RouteExplanation `json:"routes"`
}

// RouteExplanation has the decision of one route and its reasons.
type RouteExplanation struct {
	Route string `json:"route"`
	// the event of an upstream route: its type and route, such as pod.broken of broken-pods
	Event   string   `json:"event,omitempty"`
	Verdict string   `json:"verdict"`
	Tests   []Test   `json:"tests"`
	Then    []string `json:"then,omitempty"` // effect of the rules about time
}

// Test is a condition of a route. All of them must be true.
type Test struct {
	// include, from, upstream, namespaces, namespaceSelector, labelSelector, fieldSelector, on,
	// filter or when
	What   string  `json:"what"`
	Text   string  `json:"text"` // filters and conditions have a Test for each conjunct
	At     string  `json:"at,omitempty"`
	Result string  `json:"result"`
	Reason string  `json:"reason,omitempty"` // reason for a missing result
	Values []Value `json:"values,omitempty"` // the values of the non-constant sides of a comparison
}

// Value is the value of a part of a condition.
type Value struct {
	Text   string `json:"text"`
	JSON   string `json:"json,omitempty"`
	Reason string `json:"reason,omitempty"` // reason for a missing value
}

// Routes explains without a cluster the decision of each route about a delta, for each possible
// source. The error is config.Problems if the configuration has mistakes.
func Routes(ctx context.Context, in Input) ([]Explanation, error) {
	o, err := openOffline(in)
	if err != nil {
		return nil, err
	}
	var all []Explanation
	for _, source := range o.names {
		d, err := o.delta(source)
		if err != nil {
			return nil, err
		}
		e := Explanation{Delta: d.String(), Source: source}
		if e.Routes, err = o.allRoutes(ctx, d); err != nil {
			return nil, err
		}
		if err := o.lookError(); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// route explains one route. If the route has another source, the explanation ends there.
func (o *offline) route(ctx context.Context, route *config.Route, d *event.Delta) (RouteExplanation, error) {
	e := RouteExplanation{Route: route.Name, Verdict: Matches}
	if scope := route.Scope(); scope != nil {
		e.test("include", "namespaces "+strings.Join(scope.Namespaces, ", "), scope.Sees(d.Object().Home()))
		if e.Verdict != Matches {
			return e, nil
		}
	}
	o, err := o.within(route.Fragment)
	if err != nil {
		return e, err
	}
	if d.Event != nil {
		e.Event = d.Event.Type + " of " + d.Event.Route
	} else {
		e.test("from", strings.Join(route.From, ", "), slices.Contains(route.From, d.Source))
		if e.Verdict != Matches {
			return e, nil
		}
		e.selected(o.cfg.Sources[d.Source], d.Object())
	}
	if route.When != nil {
		return e, o.condition(ctx, route, d, &e)
	}
	e.test("ops", strings.Join(route.Ops, ", "), slices.Contains(route.Ops, d.Op.String()))
	if route.Filter != nil {
		filter, err := o.compile(ctx, "filter", route.Filter, cel.Filter, route, d, &e)
		if err != nil {
			return e, err
		}
		matches, err := filter.Match(ctx, o.look(ctx, d))
		result, _ := ResultOf(matches, err, filter.Sources())
		if e.Verdict == Matches {
			e.Verdict = map[string]string{Yes: Matches, No: MatchesNot, Absent: MatchesNot, Unknown: MatchUnknown, Fails: MatchFails}[result]
		}
	}
	if e.Verdict == Matches {
		if err := o.with(ctx, route, d, &e); err != nil {
			return e, err
		}
		return e, o.waits(ctx, route, d, &e)
	}
	return e, nil
}

// compile compiles a filter or a condition, and adds the result of each conjunct.
func (o *offline) compile(ctx context.Context, what string, f *config.Filter, usage cel.Usage, route *config.Route, d *event.Delta, e *RouteExplanation) (*cel.Program, error) {
	text, sources := f.For(d.Source), route.From
	if f.By != nil {
		sources = []string{d.Source}
	}
	program, err := o.env.Compile(text.Text, usage, sources...)
	if err != nil {
		return nil, compile.ProblemsOf(o.cfg, text, sources, err)
	}
	if d.New == nil && usage == cel.When {
		return program, nil // a deleted object is not evaluated
	}
	explainer, err := explain.New(o.env, text.Text, usage, d.Source)
	if err != nil {
		return nil, compile.ProblemsOf(o.cfg, text, []string{d.Source}, err)
	}
	for _, f := range explainer.All(ctx, o.look(ctx, d)) {
		e.Tests = append(e.Tests, o.conjunct(what, text, f, program.Sources()))
	}
	return program, nil
}

func (e *RouteExplanation) test(what, text string, holds bool) {
	t := Test{What: what, Text: text, Result: Yes}
	if !holds {
		t.Result, e.Verdict = No, MatchesNot
	}
	e.Tests = append(e.Tests, t)
}

// selected tests the selectors of a source, which the API server evaluates.
func (e *RouteExplanation) selected(source *config.Source, o *event.Object) {
	if len(source.Namespaces) > 0 {
		e.test("namespaces", strings.Join(source.Namespaces, ", "), slices.Contains(source.Namespaces, o.Key().Namespace))
	}
	if source.NamespaceSelector != "" {
		e.Tests = append(e.Tests, Test{
			What: "namespaceSelector", Text: source.NamespaceSelector, Result: Unknown,
			Reason: "it depends on the labels of namespace " + o.Key().Namespace + ", and is taken for true",
		})
	}
	if selector, err := labels.Parse(source.LabelSelector); err == nil && source.LabelSelector != "" {
		e.test("labelSelector", source.LabelSelector, selector.Matches(labels.Set(o.Labels())))
	}
	if selector, err := fields.ParseSelector(source.FieldSelector); err == nil && source.FieldSelector != "" {
		e.test("fieldSelector", source.FieldSelector, selector.Matches(fieldsOf{o.Raw()}))
	}
}

// fieldsOf adapts an object for a field selector.
type fieldsOf struct{ object rawjson.Value }

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool { return f.object.Path(strings.Split(path, ".")...) != "" }

// Get implements fields.Fields.
func (f fieldsOf) Get(path string) string {
	v := f.object.Path(strings.Split(path, ".")...)
	if v.Kind() == rawjson.String {
		return v.Str()
	}
	return string(v)
}

// conjunct converts a finding about a part of a filter into a test. lookups are the sources in
// which the filter looks objects up.
func (o *offline) conjunct(what string, filter *config.Expr, f explain.Finding, lookups []string) Test {
	t := Test{What: what, Text: f.Text}
	at := *filter
	if define, ok := o.cfg.Define[f.Define]; ok {
		at, t.What = define, what+": "+f.Define
	}
	p := at.Problem(f.Line, f.Column, "")
	t.At = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
	t.Result, t.Reason = ResultOf(f.Holds, f.Err, lookups)
	for _, operand := range f.Operands {
		v := Value{Text: operand.Text, JSON: string(operand.JSON)}
		if operand.Err != nil {
			_, v.Reason = ResultOf(false, operand.Err, lookups)
		}
		t.Values = append(t.Values, v)
	}
	return t
}

// ResultOf returns the result of an evaluation without other objects, and the reason if it is
// neither true nor false.
func ResultOf(holds bool, err error, lookups []string) (result, reason string) {
	failed, is := errors.AsType[*cel.EvalError](err)
	switch {
	case err == nil && holds:
		return Yes, ""
	case err == nil:
		return No, ""
	case !is:
		return Fails, err.Error()
	case errors.Is(err, cel.ErrNoCache):
		return Unknown, "it depends on other objects: " + strings.Join(lookups, ", ")
	case errors.Is(err, cel.ErrAbsent):
		return Absent, failed.Reason
	}
	return Fails, failed.Reason
}

// expressionFile is the name of the file in problems of an expression.
const expressionFile = "expression"

// EvalError is the reason why a valid expression has no value.
type EvalError struct{ config.Problems }

// Eval evaluates an expression without a cluster and returns its value as JSON. The error is
// config.Problems if the expression or the configuration has mistakes, and an EvalError if the
// expression has no value for this delta.
func Eval(ctx context.Context, text string, in Input) ([]byte, error) {
	o, err := openOffline(in)
	if err != nil {
		return nil, err
	}
	if len(o.names) > 1 {
		return nil, fmt.Errorf("several sources have such objects: choose one with -source %s", strings.Join(o.names, ", or "))
	}
	source := o.names[0]
	program, err := o.env.Compile(text, cel.Value, source)
	if err != nil {
		var problems config.Problems
		for _, failed := range cel.CompileErrors(err) {
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
	value, err := program.Value(ctx, o.look(ctx, d))
	if wrong := o.lookError(); wrong != nil {
		return nil, wrong
	}
	if failed, ok := errors.AsType[*cel.EvalError](err); ok {
		return nil, EvalError{config.Problems{o.place(text, failed.Define, failed.Line, failed.Column, failed.Reason)}}
	}
	return value, err
}

// place returns a problem at a position in the expression, or in a define that it uses.
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
