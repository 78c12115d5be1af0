package expr

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// EnvConfig is what all expressions of one configuration may refer to.
type EnvConfig struct {
	Cluster string              // the value of `cluster`
	Define  map[string]string   // name → text of a shared expression
	Sources map[string][]string // source → names of its indexes, built-in ones included
}

// Env compiles expressions. It is immutable and safe for concurrent use.
type Env struct {
	cel             *cel.Env
	cluster         ref.Val
	ops             []ref.Val // by event.Op
	sources         map[string][]string
	defines         map[string]*define
	resolutionError reflect.Type
	evaluations     sync.Pool // of *evaluation
}

// The names that an evaluation gives values to. input is the evaluation itself, which functions get as an argument; it cannot be
// written in an expression.
const (
	nameObject    = "object"
	nameOldObject = "oldObject"
	nameOp        = "op"
	nameSource    = "source"
	nameCluster   = "cluster"
	nameInput     = "@input"
)

// NewEnv prepares the environment and compiles the defines, whether they are used or not. If some of them have mistakes, the error
// holds one *[CompileError] for each, with Define set: take them apart with [CompileErrors].
func NewEnv(cfg EnvConfig) (*Env, error) {
	base, err := cel.NewEnv(slices.Concat(libraries(), variables(), ourFunctions())...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	env := &Env{
		evaluations: sync.Pool{New: func() any { return new(evaluation) }},
		cel:         base,
		cluster:     types.String(cfg.Cluster),
		ops:         []ref.Val{types.String("")},
		sources:     cfg.Sources,
		defines:     make(map[string]*define, len(cfg.Define)),
		resolutionError: resolutionError(
			interpreter.NewAttributeFactory(base.Container, base.CELTypeAdapter(), base.CELTypeProvider())),
	}
	for _, op := range event.Ops() {
		env.ops = append(env.ops, types.String(op.String()))
	}
	if err := env.define(cfg.Define); err != nil {
		return nil, err
	}
	return env, nil
}

// libraries are those of the Kubernetes API server's own environment (k8s.io/apiserver/pkg/cel/environment) at its newest
// version, without authorization checks. What it forbids, literals of mixed types, an emit needs: {"name": "x", "count": 1}.
func libraries() []cel.EnvOption {
	return []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		cel.CostEstimatorOptions(checker.PresenceTestHasCost(false)),
		ext.Bindings(),
		ext.Strings(ext.StringsVersion(2)),
		ext.Sets(),
		ext.TwoVarComprehensions(),
		ext.Lists(ext.ListsVersion(3)),
		library.URLs(),
		library.Regex(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
		library.Lists(library.ListsVersion(1)),
	}
}

func variables() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable(nameObject, cel.DynType),
		cel.Variable(nameOldObject, cel.DynType),
		cel.Variable(nameOp, cel.StringType),
		cel.Variable(nameSource, cel.StringType),
		cel.Variable(nameCluster, cel.StringType),
		cel.Variable(nameInput, cel.DynType),
	}
}
