package cost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// An estimate bounds the cost of an expression before it runs. It depends on the lengths of lists
// and texts: they are assumed if neither the schema (maxItems and the like) nor the expression
// (slice, the third argument of lookup) limits them.

// refusedAt is the multiple of the limit of an evaluation from which the cost for large objects
// counts as a mistake.
const refusedAt = 1_000

// plainPart is the divisor of the limit up to which the cost for usual objects is no reason for a
// warning about two loops, see smallPair.
const plainPart = 4

// estimator has the cost of the Kubernetes libraries and of our functions, and the sizes of the
// values in an object; the cost of the standard library is cel-go's own.
type estimator struct {
	library.CostEstimator
	assumed

	tree    *ast.AST
	root    *schema.Type    // of the object; nil: unknown
	reached map[int64]reach // by the id of the expression
}

func newEstimator(tree *ast.AST, root *schema.Type, sizes assumed) *estimator {
	c := &estimator{tree: tree, root: root, assumed: sizes, reached: make(map[int64]reach)}
	c.SizeEstimator = c
	c.measure(tree.Expr(), nil)
	return c
}

// EstimateCallCost implements checker.CostEstimator.
func (c *estimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	if function == syntax.FuncSHA256 {
		size := args[0].ComputedSize()
		if size == nil {
			size = c.EstimateSize(args[0])
		}
		if size == nil {
			size = &checker.SizeEstimate{Max: 1}
		}
		return &checker.CallEstimate{CostEstimate: size.MultiplyByCostFactor(0.1).Add(checker.FixedCostEstimate(CallCost))}
	}
	if !strings.HasPrefix(overload, syntax.Prefix) {
		return c.CostEstimator.EstimateCallCost(function, overload, target, args)
	}
	estimate := &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(CallCost)}
	exprs := make([]ast.Expr, len(args))
	for i, arg := range args {
		exprs[i] = arg.Expr()
	}
	if n := c.resultsOf(function, exprs); n > 0 {
		estimate.Max += n
		estimate.ResultSize = &checker.SizeEstimate{Max: n}
	}
	return estimate
}

// Estimates for the functions for which cel-go's estimates are far off. According to cel-go, sort()
// and sortBy() make a list of the square of the length, after as many comparisons, and distinct()
// makes such a list too, although only its comparisons are that many; the result of flatten() has
// the length of its argument; lists.range() of an unknown number has no estimate.
func Estimates() (options []checker.CostOption) {
	for _, f := range table {
		for _, overload := range f.overloads {
			estimate := estimateOfRange
			if f.each != nil {
				estimate = f.estimate
			}
			options = append(options, checker.OverloadCostEstimate(overload, estimate))
		}
	}
	return options
}

// estimate returns the estimate of a function that visits a list.
func (f function) estimate(sizes checker.CostEstimator, target *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	c, ok := sizes.(*estimator)
	if !ok || target == nil {
		return nil
	}
	size := (*target).ComputedSize()
	if size == nil {
		size = c.EstimateSize(*target)
	}
	if size == nil {
		return nil
	}
	length := checker.SizeEstimate{Max: size.Max}
	if f.flattens {
		length = length.Multiply(checker.SizeEstimate{Max: c.inner})
	}
	n := length.Max
	return &checker.CallEstimate{
		CostEstimate: checker.SizeEstimate{Max: n}.MultiplyByCost(checker.CostEstimate{Max: f.each(n)}), ResultSize: &checker.SizeEstimate{Max: n},
	}
}

// estimateOfRange returns the estimate of lists.range().
func estimateOfRange(_ checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	size := checker.SizeEstimate{Max: largeObjects().list}
	if len(args) == 1 && args[0].Expr().Kind() == ast.LiteralKind {
		if n, ok := args[0].Expr().AsLiteral().(types.Int); ok {
			size.Max = uint64(max(0, n))
		}
	}
	return &checker.CallEstimate{CostEstimate: size.AsCost(), ResultSize: &size}
}

// EstimateSize implements checker.CostEstimator.
func (c *estimator) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	t := node.Type()
	if t == nil {
		return nil
	}
	switch t.Kind() { // these are of one size
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind, types.NullTypeKind:
		return nil
	}
	if e := node.Expr(); e != nil { // otherwise an element of a list that a function visits
		if _, ok := c.reached[e.ID()]; ok {
			return &checker.SizeEstimate{Max: c.length(e)}
		}
	}
	return &checker.SizeEstimate{Max: c.assume(syntax.UnwrapOptional(t).Kind(), node.Path())}
}

// Estimate is the possible cost of an expression, in CEL's units.
type Estimate struct {
	// Reads are the fields that the expression reads: by the id of an expression in the tree, the
	// path from a variable.
	Reads map[int64][]string

	limit       uint64
	most, usual uint64 // for large objects, and for others; 0: most is within the limit
	loops       []loop // that cost the most
	noise       bool   // a warning would hardly ever be right
}

// New estimates a linked tree about objects of a type; nil: unknown.
func New(env *cel.Env, tree *cel.Ast, root *schema.Type, limit int) (*Estimate, error) {
	cost := func(sizes assumed) (uint64, *estimator, error) {
		c := newEstimator(tree.NativeRep(), root, sizes)
		cost, err := env.EstimateCost(tree, c)
		if err != nil {
			return 0, nil, fmt.Errorf("estimate the cost: %w", err)
		}
		return cost.Max, c, nil
	}
	most, c, err := cost(largeObjects())
	if err != nil {
		return nil, err
	}
	e := &Estimate{Reads: make(map[int64][]string), limit: uint64(limit), most: most} //nolint:gosec // not negative
	for id, r := range c.reached {
		e.Reads[id] = r.reads
	}
	if !e.TooMuch() {
		return e, nil
	}
	if e.usual, _, err = cost(plainObjects()); err != nil {
		return nil, err
	}
	e.loops = c.costliest(tree.NativeRep().Expr(), nil)
	e.noise = e.usual <= e.limit/plainPart && c.smallPair(e.loops)
	return e, nil
}

// smallPair reports whether the loops are two over lists of an object without a maximum in its
// schema: most such lists, as containers and volumes, are never so long that their product matters.
func (c *estimator) smallPair(loops []loop) bool {
	return len(loops) == 2 && !slices.ContainsFunc(loops, func(l loop) bool {
		r := c.reached[l.expr.ID()]
		return len(r.path) == 0 || r.path[0] != syntax.VarObject && r.path[0] != syntax.VarOldObject || c.most(r.path) > 0
	})
}

// TooMuch reports whether an evaluation may reach its limit, and is not only two loops over small
// lists.
func (e *Estimate) TooMuch() bool { return e.most > e.limit && !e.noise }

// Excessive reports whether it would for most objects, and far exceed it for large ones.
func (e *Estimate) Excessive() bool { return e.most/refusedAt > e.limit && e.usual > e.limit }

// Costliest returns the position of the costliest loop; false: there is none.
func (e *Estimate) Costliest() (id int64, ok bool) {
	if len(e.loops) == 0 {
		return 0, false
	}
	return syntax.RootOf(e.loops[len(e.loops)-1].expr).ID(), true
}

// loop is one of several nested loops.
type loop struct {
	expr ast.Expr // the list or map of the loop
	n    uint64
}

// costliest returns the nested loops with the most rounds together, the outermost first.
func (c *estimator) costliest(e ast.Expr, outer []loop) []loop {
	best := outer
	take := func(found []loop) {
		if roundsOf(found) > roundsOf(best) {
			best = found
		}
	}
	if e.Kind() != ast.ComprehensionKind {
		for _, part := range syntax.PartsOf(e) {
			take(c.costliest(part, outer))
		}
		return best
	}
	l := e.AsComprehension()
	take(c.costliest(l.IterRange(), outer))
	take(c.costliest(l.AccuInit(), outer))
	take(c.costliest(l.Result(), outer))
	inner := outer
	if n := c.length(l.IterRange()); n > 1 {
		inner = append(slices.Clone(outer), loop{l.IterRange(), n})
	}
	take(c.costliest(l.LoopStep(), inner))
	return best
}

func roundsOf(loops []loop) float64 {
	n := 1.0
	for _, l := range loops {
		n *= float64(l.n)
	}
	if len(loops) == 0 {
		return 0
	}
	return n
}
