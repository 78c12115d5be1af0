package expr

import (
	"math"
	"strings"

	"github.com/google/cel-go/checker"
	"k8s.io/apiserver/pkg/cel/library"
)

// costEstimator knows the cost of the Kubernetes libraries and of our functions; the standard library's is cel-go's own.
type costEstimator struct{ library.CostEstimator }

// callCost is what a call of one of our functions costs beside its results.
const callCost = 10

// EstimateCallCost implements checker.CostEstimator.
func (c *costEstimator) EstimateCallCost(function, overload string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	upTo := func(most uint64) *checker.CallEstimate {
		return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: callCost, Max: most}}
	}
	switch name := strings.TrimSuffix(overload, "_typed"); {
	case function == fnSHA256:
		if size := args[0].ComputedSize(); size != nil {
			return upTo(callCost + size.Max/10)
		}
		return upTo(math.MaxUint64)
	case !strings.HasPrefix(overload, at):
		return c.CostEstimator.EstimateCallCost(function, overload, target, args)
	case name == at+fnLookup+"_of", name == at+fnList+"_of", name == at+fnManagers+"_of":
		return upTo(math.MaxUint64)
	case name == at+fnDiff+"_of":
		estimate := upTo(callCost + maxDifferences)
		estimate.ResultSize = &checker.SizeEstimate{Max: maxDifferences}
		return estimate
	default:
		return upTo(callCost)
	}
}
