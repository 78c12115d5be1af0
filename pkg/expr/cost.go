package expr

import (
	"math"
	"strings"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// costEstimator knows the cost of the Kubernetes libraries and of our functions; the standard library's is cel-go's own.
type costEstimator struct{ library.CostEstimator }

// callCost is what a call of one of our functions costs beside its results.
const callCost = 10

// CallCost implements interpreter.ActualCostEstimator.
func (c *costEstimator) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if !strings.HasPrefix(overload, at) {
		return c.CostEstimator.CallCost(function, overload, args, result)
	}
	cost := uint64(callCost)
	if objects, ok := result.(traits.Lister); ok {
		if n, ok := objects.Size().(types.Int); ok {
			cost += uint64(n)
		}
	}
	return &cost
}

// EstimateCallCost implements checker.CostEstimator.
func (c *costEstimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	if !strings.HasPrefix(overload, at) {
		return c.CostEstimator.EstimateCallCost(function, overload, target, args)
	}
	if name := strings.TrimSuffix(overload, "_typed"); name == at+fnLookup+"_of" || name == at+fnList+"_of" {
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: callCost, Max: math.MaxUint64}}
	}
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: callCost, Max: callCost}}
}
