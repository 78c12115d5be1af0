package check

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/deltarouter/deltarouter/internal/cel/cost"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
	"github.com/deltarouter/deltarouter/internal/cel/typeset"
)

// Libraries returns the libraries of the Kubernetes API server's own environment
// (k8s.io/apiserver/pkg/cel/environment) at its newest version, without authorization checks.
// Unlike there, literals of mixed types are allowed, because an emit needs them: {"name": "x",
// "count": 1}.
func Libraries() []cel.EnvOption {
	return []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		ext.Bindings(),
		ext.Strings(ext.StringsVersion(2)),
		ext.Sets(),
		ext.Math(),
		ext.Encoders(),
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
		cel.CostEstimatorOptions(slices.Concat(cost.Estimates(), []checker.CostOption{checker.PresenceTestHasCost(false)})...),
	}
}

func variables(object *cel.Type) []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable(syntax.VarObject, object),
		cel.Variable(syntax.VarOldObject, object),
		cel.Variable(syntax.VarOp, cel.StringType),
		cel.Variable(syntax.VarSource, cel.StringType),
		cel.Variable(syntax.VarCluster, cel.StringType),
		cel.Variable(syntax.VarNow, cel.TimestampType),
		cel.Variable(syntax.VarSince, cel.TimestampType),
		cel.Variable(syntax.VarLate, cel.BoolType),
		cel.Variable(syntax.VarRepeat, cel.BoolType),
		cel.Variable(syntax.VarSuppressed, cel.IntType),
		cel.Variable(syntax.VarObjects, cel.ListType(object)),
		cel.Variable(syntax.VarEvent, cel.ObjectType(typeset.EventRecord)),
		cel.Variable(syntax.VarEvents, cel.ListType(cel.ObjectType(typeset.EventRecord))),
		cel.Variable(syntax.VarInput, cel.DynType),
	}
}
