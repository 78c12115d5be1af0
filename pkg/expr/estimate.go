package expr

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/deltarouter/deltarouter/pkg/schema"
)

// An estimate says before anything runs what an expression may cost. It needs to know how long lists and texts are: where the schema does not
// say (maxItems and the like), these are assumed. They are those of large objects, not of the largest.
const (
	assumedList   = 1_000  // elements of a list or map: as many endpoints as a slice of them has
	assumedInner  = 10     // elements of a list or map in the elements of another
	assumedText   = 100    // characters
	assumedFound  = 1_000  // results of lookup
	assumedSource = 10_000 // results of list
)

// refusedAt is how many times the limit of an evaluation an expression may cost by its estimate: one over that is no good at a tenth of the
// assumed lengths either if it has three loops inside of each other. One over the limit itself is warned about.
const refusedAt = 1_000

// callCost is what a call of one of our functions costs beside its results.
const callCost = 10

// costEstimator knows the cost of the Kubernetes libraries and of our functions, and the sizes of what is in an object; the standard
// library's cost is cel-go's own.
type costEstimator struct {
	library.CostEstimator

	root  *schema.Type     // of the object; nil: not known
	sizes map[int64]uint64 // what was asked for, by the id of the expression
}

func newEstimator(root *schema.Type) *costEstimator {
	c := &costEstimator{root: root, sizes: make(map[int64]uint64)}
	c.SizeEstimator = c
	return c
}

// EstimateCallCost implements checker.CostEstimator.
func (c *costEstimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	if function == fnSHA256 {
		size := args[0].ComputedSize()
		if size == nil {
			size = c.EstimateSize(args[0])
		}
		if size == nil {
			size = &checker.SizeEstimate{Max: 1}
		}
		return &checker.CallEstimate{CostEstimate: size.MultiplyByCostFactor(0.1).Add(checker.FixedCostEstimate(callCost))}
	}
	if !strings.HasPrefix(overload, at) {
		return c.CostEstimator.EstimateCallCost(function, overload, target, args)
	}
	estimate := &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(callCost)}
	if n := resultsOf(function); n > 0 {
		estimate.Max += n
		estimate.ResultSize = &checker.SizeEstimate{Max: n}
	}
	return estimate
}

// listEstimates are of sort() and sortBy(), for which cel-go says the square of the length, and of lists.range() of a number that is not known,
// for which it has none.
func listEstimates() (options []checker.CostOption) {
	estimate := func(estimator checker.CostEstimator, target *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
		if target == nil {
			return nil
		}
		size := (*target).ComputedSize()
		if size == nil {
			size = estimator.EstimateSize(*target)
		}
		if size == nil {
			return nil
		}
		comparisons := checker.FixedCostEstimate(uint64(bits.Len64(size.Max))) //nolint:gosec // not negative
		return &checker.CallEstimate{CostEstimate: size.MultiplyByCost(comparisons), ResultSize: size}
	}
	options = append(options, checker.OverloadCostEstimate("lists_range",
		func(_ checker.CostEstimator, _ *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
			size := checker.SizeEstimate{Max: assumedList}
			if len(args) == 1 && args[0].Expr().Kind() == ast.LiteralKind {
				if n, ok := args[0].Expr().AsLiteral().(types.Int); ok {
					size.Max = uint64(max(0, n))
				}
			}
			return &checker.CallEstimate{CostEstimate: size.AsCost(), ResultSize: &size}
		}))
	for _, t := range []*cel.Type{
		cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.DurationType, cel.TimestampType, cel.StringType, cel.BytesType,
	} {
		for _, function := range []string{"sort", "sortByAssociatedKeys"} {
			options = append(options, checker.OverloadCostEstimate(fmt.Sprintf("list_%s_%s", t.TypeName(), function), estimate))
		}
	}
	return options
}

// resultsOf is how many elements a function of ours is assumed to find.
func resultsOf(function string) uint64 {
	switch function {
	case at + fnLookup:
		return assumedFound
	case at + fnList:
		return assumedSource
	case at + fnManagers:
		return assumedInner
	case at + fnDiff:
		return maxDifferences
	}
	return 0
}

// EstimateSize implements checker.CostEstimator.
func (c *costEstimator) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	n := uint64(0)
	if node.Type() == nil {
		return nil
	}
	switch node.Type().Kind() {
	case types.StringKind, types.BytesKind:
		n = assumedText
	case types.ListKind, types.MapKind, types.DynKind, types.StructKind:
		n = assumedList
		if slices.ContainsFunc(node.Path(), func(step string) bool { return strings.HasPrefix(step, "@") }) { // like @items
			n = assumedInner
		}
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind, types.NullTypeKind:
		return nil // of one size
	case types.TypeKind:
		n = 1
	default: // an optional, a quantity
		n = assumedText
	}
	if most := c.most(node.Path()); most > 0 {
		n = most
	}
	if e := node.Expr(); e != nil { // else an element of a list that a function goes through
		c.sizes[e.ID()] = n
	}
	return &checker.SizeEstimate{Max: n}
}

// most is how long the schema says that what is at the path may be; 0: it does not say.
func (c *costEstimator) most(path []string) uint64 {
	if len(path) == 0 || path[0] != nameObject && path[0] != nameOldObject {
		return 0
	}
	t := c.root
	for _, step := range path[1:] {
		switch {
		case t == nil || step == "@keys" || step == "@indices":
			return 0
		case t.Kind == schema.Object:
			t = fieldOf(t, step)
		default:
			t = t.Elem
		}
	}
	if t == nil {
		return 0
	}
	return uint64(max(0, t.Max))
}

// fieldOf finds a field by one of the names that CEL has for it.
func fieldOf(t *schema.Type, called string) *schema.Type {
	if f, ok := t.Fields[called]; ok {
		return f.Type
	}
	for name, f := range t.Fields {
		if slices.Contains(names(name), called) {
			return f.Type
		}
	}
	return nil
}

// estimate sets what the tree may cost, and where.
func (p *Program) estimate(tree *cel.Ast) error {
	var root *schema.Type
	if p.shape != nil {
		root = p.shape.of
	}
	c := newEstimator(root)
	cost, err := p.scope.cel.EstimateCost(tree, c)
	if err != nil {
		return fmt.Errorf("estimate the cost: %w", err)
	}
	if cost.Max <= uint64(p.limit) {
		return nil
	}
	loops := c.costliest(tree.NativeRep().Expr(), nil)
	p.costly = &Warning{}
	if len(loops) > 0 {
		p.costly.Define, p.costly.Line, p.costly.Column = p.place(rootOf(loops[len(loops)-1].expr).ID())
	}
	p.costly.Line = max(1, p.costly.Line)
	p.costly.Message = fmt.Sprintf("this may cost %s, and an evaluation is stopped at %s%s", grouped(cost.Max), grouped(uint64(p.limit)), explained(loops))
	if cost.Max/refusedAt <= uint64(p.limit) || p.usage == Value { // who tries something out sees where it ends
		return nil
	}
	return &CompileError{Define: p.costly.Define, Issues: []Issue{p.costly.Issue}}
}

// loop is one of several loops inside of each other.
type loop struct {
	expr ast.Expr // what it goes through
	n    uint64
}

// costliest is the loops that are inside of each other and together have the most rounds, the outermost first.
func (c *costEstimator) costliest(e ast.Expr, outer []loop) []loop {
	best := outer
	take := func(found []loop) {
		if roundsOf(found) > roundsOf(best) {
			best = found
		}
	}
	if e.Kind() != ast.ComprehensionKind {
		for _, part := range partsOf(e) {
			take(c.costliest(part, outer))
		}
		return best
	}
	l := e.AsComprehension()
	take(c.costliest(l.IterRange(), outer))
	take(c.costliest(l.AccuInit(), outer))
	take(c.costliest(l.Result(), outer))
	inner := outer
	if n := c.lengthOf(l.IterRange()); n > 1 {
		inner = append(slices.Clone(outer), loop{l.IterRange(), n})
	}
	take(c.costliest(l.LoopStep(), inner))
	return best
}

func (c *costEstimator) lengthOf(e ast.Expr) uint64 {
	switch e.Kind() {
	case ast.ListKind:
		return uint64(e.AsList().Size()) //nolint:gosec // not negative
	case ast.MapKind:
		return uint64(e.AsMap().Size()) //nolint:gosec // not negative
	case ast.CallKind:
		if n := resultsOf(e.AsCall().FunctionName()); n > 0 {
			return n
		}
	case ast.ComprehensionKind:
		return c.lengthOf(e.AsComprehension().IterRange())
	default:
	}
	if n, ok := c.sizes[e.ID()]; ok {
		return n
	}
	return assumedText // pieces of one
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

// explained says why, and what to do.
func explained(loops []loop) string {
	if len(loops) == 0 {
		return ""
	}
	parts := make([]string, len(loops))
	for i, l := range loops {
		parts[i] = fmt.Sprintf("%s elements of %s", grouped(l.n), described(l.expr))
	}
	text := ": it goes through " + strings.Join(parts, " times ")
	if len(loops) > 1 {
		return text + "; find what belongs together with an index and lookup() instead, or say in the schema how long the lists can be (maxItems)"
	}
	return text + "; go through less, or do less for each"
}

// described is how an expression is called in a message.
func described(e ast.Expr) string {
	switch {
	case e.Kind() == ast.CallKind && !strings.HasPrefix(e.AsCall().FunctionName(), "_"):
		return strings.TrimPrefix(e.AsCall().FunctionName(), at) + "()"
	case strings.Contains(pathOf(e), "#"):
		return "what was computed"
	}
	return pathOf(e)
}

// grouped writes a number with commas; very large ones are only that.
func grouped(n uint64) string {
	if n > 1_000_000_000_000_000 {
		return "more than 1,000,000,000,000,000"
	}
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
