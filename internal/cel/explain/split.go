package explain

import (
	"strings"
	"unicode"

	gocel "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// splitter splits texts into conjuncts. A tree has the positions of its operators, so the text
// between them is a conjunct, except for parentheses that belong to a larger term.
type splitter struct {
	env    *cel.Env
	source string
	usage  check.Usage
	terms  []term
}

// piece is a part of a text: the code points from start to end.
type piece struct {
	define     string
	text, bare []rune // bare is the text without the contents of strings and comments
	start, end int
}

// split adds the conjuncts of a text, and in the place of a define those of its text.
func (s *splitter) split(define, text string) error {
	tree, err := s.env.Parse(define, text, s.source)
	if err != nil {
		return err
	}
	runes := []rune(text)
	bare := syntax.Bare(runes)
	leaves, cuts := conjuncts(tree.NativeRep().Expr(), tree.NativeRep().SourceInfo())
	from := 0
	for i, leaf := range leaves {
		region := piece{define, runes, bare, from, len(runes)}
		if i < len(cuts) {
			region.end, from = cuts[i], cuts[i]+len("&&")
		}
		if leaf.Kind() == ast.IdentKind {
			if text, ok := s.env.Define(leaf.AsIdent()); ok {
				if err := s.split(leaf.AsIdent(), text); err != nil {
					return err
				}
				continue
			}
		}
		if err := s.add(region, leaf, tree); err != nil {
			return err
		}
	}
	return nil
}

// conjuncts returns the terms that && joins, in the order of the text, and the positions of the
// operators between them.
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
func (s *splitter) add(region piece, leaf ast.Expr, tree *gocel.Ast) error {
	t, err := s.term(region, s.usage)
	if err != nil {
		return err
	}
	for _, side := range sides(region, leaf, tree.NativeRep().SourceInfo()) {
		// An operand that cannot be evaluated by itself is left out: operands only help the reader.
		if operand, err := s.term(side, check.Value); err == nil && !operand.program.IsConstant() {
			t.operands = append(t.operands, operand)
		}
	}
	s.terms = append(s.terms, t)
	return nil
}

// term compiles a region of a text by itself.
func (s *splitter) term(region piece, usage check.Usage) (term, error) {
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

// balanced removes the surrounding space, and the parentheses whose partners are outside, from a
// region. Those are all at one side: a term cannot be the first of one parenthesis and the last of
// another.
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

// sides returns the two sides of a comparison; nothing if leaf is none.
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
