// Package cost bounds the cost of an evaluation, and estimates it before it runs.
//
// One table has all facts about the cost of a function. The counting of an evaluation, the set of
// weighed and replaced calls, and the assumptions of an estimate follow from it.
package cost

import (
	"fmt"
	"math/bits"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/deltarouter/deltarouter/internal/cel/jsonval"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// function has the cost of the calls of a function, and the length of its result. The zero function
// stands for one that is not in the table: it is weighed, and takes time in proportion to its
// arguments.
type function struct {
	// linear: an expression of such functions alone, without loops, needs no counting.
	linear bool
	// free: a call takes no longer than a step whatever its arguments, or charges its reads itself.
	free bool
	// work is that of a call, see [jsonval.Meter.Charge]; nil: by the elements and bytes of the
	// arguments.
	work func(m *jsonval.Meter, args []ref.Val) int
	// always: calls with small arguments are weighed, too.
	always bool
	// bounded replaces an implementation whose result can be as long as the product of its
	// arguments.
	bounded functions.FunctionOp
	// impl is the implementation of a weighed call; nil: cel-go's.
	impl functions.FunctionOp
	// pattern: its second argument is a regular expression.
	pattern bool

	// The estimate of a call: its result has the length and the elements of its first argument, or
	// those of the longer one of two.
	asFirst, asLonger bool
	// If cel-go's own estimate is far off: the overloads, and the cost of each element in a list of
	// n; nil: as a list.
	overloads []string
	each      func(n uint64) uint64
	flattens  bool // the result has the elements of the elements
}

// weight returns the work of a call.
func (f function) weight() func(m *jsonval.Meter, args []ref.Val) int {
	if f.work != nil {
		return f.work
	}
	return func(_ *jsonval.Meter, args []ref.Val) int { return lengths(elementsBy, args...) }
}

// table has all that is known of the cost of functions, by the name that they have in a tree.
var table = map[string]function{
	operators.LogicalAnd:       {linear: true, free: true},
	operators.LogicalOr:        {linear: true, free: true},
	operators.LogicalNot:       {linear: true, free: true},
	operators.Conditional:      {linear: true, free: true},
	operators.NotStrictlyFalse: {free: true},

	operators.Subtract: {linear: true, free: true},
	operators.Multiply: {linear: true, free: true},
	operators.Divide:   {linear: true, free: true},
	operators.Modulo:   {linear: true, free: true},
	operators.Negate:   {linear: true, free: true},
	operators.Add:      {linear: true, work: workOfAdd, bounded: add},

	operators.Equals:        {linear: true, work: workOfEquals, impl: isEqual},
	operators.NotEquals:     {linear: true, work: workOfEquals, impl: isNotEqual},
	operators.Less:          {linear: true, work: workOfCompare},
	operators.LessEquals:    {linear: true, work: workOfCompare},
	operators.Greater:       {linear: true, work: workOfCompare},
	operators.GreaterEquals: {linear: true, work: workOfCompare},
	operators.In:            {linear: true, work: workOfIn},

	operators.Index:           {linear: true, free: true},
	operators.OptIndex:        {linear: true, free: true},
	operators.OptSelect:       {linear: true, free: true},
	"optional.of":             {linear: true, free: true, asFirst: true},
	"optional.none":           {linear: true, free: true},
	"optional.ofNonZeroValue": {free: true, asFirst: true},
	"orValue":                 {linear: true, free: true, asLonger: true},
	"or":                      {linear: true, free: true, asLonger: true},
	"hasValue":                {linear: true, free: true},
	"value":                   {linear: true, free: true, asFirst: true},
	"cel.@mapInsert":          {free: true},

	"dyn":    {linear: true, free: true, asFirst: true},
	"type":   {free: true},
	"string": {linear: true},
	"int":    {linear: true},
	"uint":   {linear: true},
	"double": {linear: true},
	"bool":   {linear: true},

	"size":        {linear: true, work: workOfCompare},
	"startsWith":  {linear: true, work: workOfCompare},
	"endsWith":    {linear: true, work: workOfCompare},
	"contains":    {linear: true, work: workOfCompare},
	"split":       {linear: true},
	"lowerAscii":  {linear: true},
	"upperAscii":  {linear: true},
	"trim":        {linear: true},
	"indexOf":     {work: workOfSearch},
	"lastIndexOf": {work: workOfSearch},
	"replace":     {bounded: replace},
	"format":      {work: workOfGather},
	"matches":     {pattern: true},
	"find":        {pattern: true},
	"findAll":     {pattern: true},
	"quantity":    {work: workOfQuantity},
	"isQuantity":  {work: workOfQuantity},

	"join":    {work: workOfGather, bounded: join},
	"reverse": {asFirst: true},
	"sort":    {work: workOfGather, asFirst: true, overloads: sortOverloads(), each: comparisons},
	"flatten": {work: workOfGather, overloads: []string{"list_flatten", "list_flatten_int"}, each: one, flattens: true},
	"distinct": {
		work: workOfDistinct, asFirst: true, overloads: []string{"list_distinct"}, each: func(n uint64) uint64 { return n },
	},
	"lists.range":     {work: workOfRange, always: true, overloads: []string{"lists_range"}},
	"sets.contains":   {work: workOfSets},
	"sets.intersects": {work: workOfSets},
	"sets.equivalent": {work: workOfSets},

	syntax.Prefix + syntax.FuncChanged:   {linear: true, free: true},
	syntax.Prefix + syntax.FuncCount:     {linear: true, free: true},
	syntax.Prefix + syntax.FuncGet:       {linear: true, free: true},
	syntax.Prefix + syntax.FuncLookup:    {free: true},
	syntax.Prefix + syntax.FuncLookupMax: {free: true},
	syntax.Prefix + syntax.FuncList:      {free: true},
	syntax.FuncSHA256:                    {linear: true},
}

// sortOverloads returns the overloads of sort() and sortBy().
func sortOverloads() (names []string) {
	for _, t := range []*cel.Type{
		cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.DurationType, cel.TimestampType, cel.StringType, cel.BytesType,
	} {
		for _, function := range []string{"sort", "sortByAssociatedKeys"} {
			names = append(names, fmt.Sprintf("list_%s_%s", t.TypeName(), function))
		}
	}
	return names
}

func comparisons(n uint64) uint64 { return uint64(bits.Len64(n)) } //nolint:gosec // not negative

func one(uint64) uint64 { return 1 }

func isEqual(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }

func isNotEqual(args ...ref.Val) ref.Val {
	return types.Bool(types.Equal(args[0], args[1]) != types.True)
}

// The cost limits of one evaluation, in CEL's units: about one per step.
const (
	Limit      = 1_000_000
	IndexLimit = 100_000
)

const (
	// WorkPerCost is the work that the meter counts for a unit of cost. A unit of work is about a
	// nanosecond, or a byte of JSON read: 100 MB, 10 MB for an index. So every evaluation ends
	// within about 100 ms of CPU.
	WorkPerCost = 100
	// CallCost is the cost of a call of one of our functions without its results.
	CallCost = 10
	// MaxDifferences is the largest number of entries of diff. If there are more, a value with many
	// differences counts as one.
	MaxDifferences = 1000
)
