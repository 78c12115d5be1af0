package expr

import (
	"fmt"
	"maps"
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
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// EnvConfig is what all expressions of one configuration may refer to.
type EnvConfig struct {
	Cluster string              // the value of `cluster`
	Define  map[string]string   // name → text of a shared expression
	Sources map[string][]string // source → names of its indexes, built-in ones included
	// Types is what the objects of a source look like, an Object of package schema. Of a source that is not in it nothing is known:
	// its expressions are checked when they are evaluated.
	Types map[string]*schema.Type
	// Owners is what controller follows: for sources whose objects may control others, what these are.
	Owners map[string]Owner
	// ManagedFields has the sources that keep metadata.managedFields, which managers reads.
	ManagedFields map[string]bool
}

// Env compiles expressions. It is immutable and safe for concurrent use.
type Env struct {
	scopes          map[string]*scope // by source; "": for sources of which nothing is known, and for several
	types           *typeSet
	shapes          map[string]*shape // by source
	checking        sync.Mutex        // an expression is checked at a time: what is missed in it belongs to it
	cluster         ref.Val
	ops             []ref.Val // by event.Op
	sources         map[string][]string
	owners          map[string]Owner
	managedFields   map[string]bool
	texts           map[string]string // of the defines
	resolutionError reflect.Type
	evaluations     sync.Pool // of *evaluation
}

// The names that an evaluation gives values to, beside nameEvent. input is the evaluation itself, which functions get as an argument; it cannot be
// written in an expression.
const (
	nameObject    = "object"
	nameOldObject = "oldObject"
	nameOp        = "op"
	nameSource    = "source"
	nameCluster   = "cluster"
	nameNow       = "now"
	nameSince     = "since"
	nameLate      = "late"
	nameRepeat    = "repeat"

	nameSuppressed = "suppressed"
	nameObjects    = "objects"
	nameEvents     = "events"

	nameInput = "@input"
)

// NewEnv prepares the environment and compiles the defines, whether they are used or not. If some of them have mistakes, whatever
// the objects look like, the error holds one *[CompileError] for each, with Define set: take them apart with [CompileErrors].
func NewEnv(cfg EnvConfig) (*Env, error) {
	base, err := cel.NewEnv(slices.Concat(libraries(), ourFunctions(), eventFunctions())...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	env := &Env{
		evaluations: sync.Pool{New: func() any { return new(evaluation) }},
		scopes:      make(map[string]*scope),
		types:       newTypeSet(base.CELTypeProvider()),
		shapes:      make(map[string]*shape),
		cluster:     types.String(cfg.Cluster),
		ops:         []ref.Val{types.String("")},
		sources:     cfg.Sources,
		owners:      cfg.Owners, managedFields: cfg.ManagedFields,
		texts: cfg.Define,
		resolutionError: resolutionError(
			interpreter.NewAttributeFactory(base.Container, base.CELTypeAdapter(), base.CELTypeProvider())),
	}
	for _, op := range event.Ops() {
		env.ops = append(env.ops, types.String(op.String()))
	}
	return env, env.addScopes(base, cfg.Types)
}

// addScopes makes a scope for each type. What a define has wrong in the scope that knows of no types is wrong everywhere.
func (e *Env) addScopes(base *cel.Env, known map[string]*schema.Type) error {
	celTypes := make(map[string]*cel.Type, len(known))
	for _, source := range slices.Sorted(maps.Keys(known)) {
		if t := known[source]; t != nil && t.Kind == schema.Object {
			celTypes[source] = e.types.add(t)
			e.shapes[source] = e.types.shapes.of(t)
		}
	}
	untyped, err := e.newScope(base, "", cel.DynType)
	if err != nil {
		return err
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(untyped.failed)) {
		wrong = append(wrong, untyped.failed[name])
	}
	if len(wrong) > 0 {
		return joinErrors(wrong)
	}
	e.scopes[""] = untyped
	for _, source := range slices.Sorted(maps.Keys(celTypes)) {
		if e.scopes[source], err = e.newScope(base, source, celTypes[source]); err != nil {
			return err
		}
	}
	return nil
}

// scopeOf is where the expressions of a source are checked.
func (e *Env) scopeOf(source string) *scope {
	if s, ok := e.scopes[source]; ok {
		return s
	}
	return e.scopes[""]
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
		cel.CostEstimatorOptions(slices.Concat(listEstimates(), []checker.CostOption{checker.PresenceTestHasCost(false)})...),
	}
}

func variables(object *cel.Type) []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable(nameObject, object),
		cel.Variable(nameOldObject, object),
		cel.Variable(nameOp, cel.StringType),
		cel.Variable(nameSource, cel.StringType),
		cel.Variable(nameCluster, cel.StringType),
		cel.Variable(nameNow, cel.TimestampType),
		cel.Variable(nameSince, cel.TimestampType),
		cel.Variable(nameLate, cel.BoolType),
		cel.Variable(nameRepeat, cel.BoolType),
		cel.Variable(nameSuppressed, cel.IntType),
		cel.Variable(nameObjects, cel.ListType(object)),
		cel.Variable(nameEvent, cel.ObjectType(eventRecord)),
		cel.Variable(nameEvents, cel.ListType(cel.ObjectType(eventRecord))),
		cel.Variable(nameInput, cel.DynType),
	}
}
