package expr

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// Value evaluates an expression of any type and returns the result as compact JSON: null for an absent optional. Errors are as with
// [Program.Match]; a result that JSON does not have is one of type.
func (p *Program) Value(ctx context.Context, in Input) ([]byte, error) {
	e := p.start(in)
	defer e.release()
	v, err := e.run(ctx)
	if err != nil {
		return nil, err
	}
	return p.json(v)
}

// Conjunct is one of the terms that a filter joins with &&. A define that is a term by itself is taken apart too.
type Conjunct struct {
	Define       string // in whose text it stands; empty: the filter's own
	Line, Column int    // where, counted as in [Issue]
	Text         string
}

// Finding is what became of a conjunct.
type Finding struct {
	Conjunct

	Holds bool
	Err   error // why it has no value, as with [Program.Match]; its place is that in the filter's, or the define's, text
	// Operands are the sides of a comparison that are no constants.
	Operands []Operand
}

// Operand is one side of a comparison.
type Operand struct {
	Text string
	JSON []byte // its value
	Err  error  // why it has none
}

// Explainer evaluates a filter, or a condition, conjunct by conjunct, to tell people why it matches or not. What the filter says is the
// filter's own business: false && error is false. It is immutable and safe for concurrent use.
type Explainer struct {
	terms []term
}

// term is a conjunct that can be evaluated by itself.
type term struct {
	Conjunct

	program  *Program
	operands []term // without operands of their own
}

// Explain takes a [Filter] or [When] apart. The error is that of [Env.Compile].
func (e *Env) Explain(text string, usage Usage, source string) (*Explainer, error) {
	if _, err := e.Compile(text, usage, source); err != nil {
		return nil, err
	}
	s := splitter{env: e, scope: e.scopeOf(source), source: source, usage: usage}
	if err := s.split("", text); err != nil {
		return nil, err
	}
	return &Explainer{s.terms}, nil
}

// All evaluates every conjunct, in the order of the text, and the operands of comparisons.
func (x *Explainer) All(ctx context.Context, in Input) []Finding {
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

// Refusal returns the first conjunct that is false; if none is, the first that has no value. False: they all hold.
func (x *Explainer) Refusal(ctx context.Context, in Input) (Finding, bool) {
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

func (t *term) find(ctx context.Context, in Input) Finding {
	holds, err := t.program.Match(ctx, in)
	return Finding{Conjunct: t.Conjunct, Holds: holds, Err: t.placed(err)}
}

// placed gives an error the place that it has in the whole text.
func (t *term) placed(err error) error {
	failed, ok := errors.AsType[*EvalError](err)
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

// splitter cuts texts into conjuncts. A tree knows where its operators are, so what lies between them is a conjunct, but for
// parentheses that belong to a larger term.
type splitter struct {
	env    *Env
	scope  *scope
	source string
	usage  Usage
	terms  []term
}

// piece is a part of a text: the code points from start to end.
type piece struct {
	define     string
	text, bare []rune // bare is the text without what strings and comments hold
	start, end int
}

// split adds the conjuncts of a text, those of defines in their place.
func (s *splitter) split(define, text string) error {
	tree, issues := s.scope.cel.Parse(text)
	if issues.Err() != nil {
		return s.scope.compileError(define, text, issues)
	}
	runes := []rune(text)
	bare := bare(runes)
	leaves, cuts := conjuncts(tree.NativeRep().Expr(), tree.NativeRep().SourceInfo())
	from := 0
	for i, leaf := range leaves {
		region := piece{define, runes, bare, from, len(runes)}
		if i < len(cuts) {
			region.end, from = cuts[i], cuts[i]+len("&&")
		}
		if leaf.Kind() == ast.IdentKind && s.scope.defines[leaf.AsIdent()] != nil {
			name := leaf.AsIdent()
			if err := s.split(name, s.env.texts[name]); err != nil {
				return err
			}
			continue
		}
		if err := s.add(region, leaf, tree); err != nil {
			return err
		}
	}
	return nil
}

// conjuncts returns the terms that && joins, in the order of the text, and where the operators between them are.
func conjuncts(e ast.Expr, info *ast.SourceInfo) (leaves []ast.Expr, cuts []int) {
	at, known := info.GetOffsetRange(e.ID())
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd || !known {
		return []ast.Expr{e}, nil
	}
	leaves, cuts = conjuncts(e.AsCall().Args()[0], info)
	right, rightCuts := conjuncts(e.AsCall().Args()[1], info)
	return append(leaves, right...), append(append(cuts, int(at.Start)), rightCuts...)
}

// add adds the term of a region of the text.
func (s *splitter) add(region piece, leaf ast.Expr, tree *cel.Ast) error {
	t, err := s.term(region, s.usage)
	if err != nil {
		return err
	}
	for _, side := range sides(region, leaf, tree.NativeRep().SourceInfo()) {
		// What cannot be evaluated by itself is left out: it only helps to understand.
		if operand, err := s.term(side, Value); err == nil && operand.program.refers {
			t.operands = append(t.operands, operand)
		}
	}
	s.terms = append(s.terms, t)
	return nil
}

// term compiles a region of a text by itself.
func (s *splitter) term(region piece, usage Usage) (term, error) {
	region = region.balanced()
	t := term{Conjunct: Conjunct{Define: region.define, Line: 1, Text: string(region.text[region.start:region.end])}}
	for _, r := range region.text[:region.start] {
		if t.Column++; r == '\n' {
			t.Line, t.Column = t.Line+1, 0
		}
	}
	var err error
	t.program, err = s.env.Compile(t.Text, usage, s.source)
	return t, err
}

// balanced takes from a region the space around it and the parentheses whose partners are outside. Those are all at one side: a term
// cannot be the first of one parenthesis and the last of another.
func (p piece) balanced() piece {
	open := 0
	for _, r := range p.bare[p.start:p.end] {
		switch r {
		case '(':
			open++
		case ')':
			open--
		}
	}
	for p = p.trimmed(); open > 0 && p.start < p.end; open-- {
		p.start++
		p = p.trimmed()
	}
	for ; open < 0 && p.start < p.end; open++ {
		p.end--
		p = p.trimmed()
	}
	return p
}

func (p piece) trimmed() piece {
	for p.start < p.end && unicode.IsSpace(p.bare[p.start]) {
		p.start++
	}
	for p.end > p.start && unicode.IsSpace(p.bare[p.end-1]) {
		p.end--
	}
	return p
}

// bare returns the text, which CEL could parse, with comments as space and all that stands in quotes as quotes.
func bare(text []rune) []rune {
	out := slices.Clone(text)
	for i := 0; i < len(text); {
		end := i + 1
		switch {
		case text[i] == '"' || text[i] == '\'':
			end = endOfString(text, i)
			fill(out[i:end], text[i])
		case strings.HasPrefix(string(text[i:min(i+2, len(text))]), "//"):
			for end < len(text) && text[end] != '\n' {
				end++
			}
			fill(out[i:end], ' ')
		}
		i = end
	}
	return out
}

func fill(text []rune, r rune) {
	for i := range text {
		text[i] = r
	}
}

// endOfString returns where the string ends whose quotes begin at i.
func endOfString(text []rune, i int) int {
	quote := text[i : i+1]
	if i+2 < len(text) && text[i+1] == text[i] && text[i+2] == text[i] {
		quote = text[i : i+3]
	}
	raw := false
	for j := i - 1; j >= max(0, i-2) && strings.ContainsRune("rRbB", text[j]); j-- {
		raw = raw || text[j] == 'r' || text[j] == 'R'
	}
	for j := i + len(quote); j < len(text); j++ {
		switch {
		case text[j] == '\\' && !raw:
			j++
		case slices.Equal(text[j:min(j+len(quote), len(text))], quote):
			return j + len(quote)
		}
	}
	return len(text)
}

// sides returns where the two sides of a comparison are; nothing if leaf is none.
func sides(region piece, leaf ast.Expr, info *ast.SourceInfo) []piece {
	if leaf.Kind() != ast.CallKind || len(leaf.AsCall().Args()) != 2 {
		return nil
	}
	sign, ok := operators.FindReverse(leaf.AsCall().FunctionName())
	at, known := info.GetOffsetRange(leaf.ID())
	op := int(at.Start)
	if !ok || !known || op < region.start || op+len(sign) > region.end || string(region.text[op:op+len(sign)]) != sign {
		return nil
	}
	if !strings.Contains(" == != < <= > >= in ", " "+sign+" ") {
		return nil
	}
	left, right := region, region
	left.end, right.start = op, op+len(sign)
	return []piece{left, right}
}
