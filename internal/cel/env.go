package cel

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/deltarouter/deltarouter/internal/cel/builtin"
	"github.com/deltarouter/deltarouter/internal/cel/check"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// Owner describes the objects of a source that may control others.
type Owner = builtin.Owner

// EnvConfig has the names that all expressions of one configuration may use.
type EnvConfig struct {
	Cluster string              // the value of `cluster`
	Define  map[string]string   // name → text of a shared expression
	Sources map[string][]string // source → names of its indexes, built-in ones included
	// Types has the type of the objects of each source, an Object of package schema. Expressions
	// about a source without a type are checked when they are evaluated.
	Types map[string]*schema.Type
	// Owners has the sources that controller follows: those whose objects may control others.
	Owners map[string]Owner
	// ManagedFields has the sources that keep metadata.managedFields, which managers reads.
	ManagedFields map[string]bool
	// Effort is spent on the defines; nil: they have no bound together.
	Effort *Effort
	// Missing returns the message about a source that is not in Sources. nil: it names those that
	// are.
	Missing func(source string) string
}

// Effort bounds the work of compiling the expressions of one owner, see package check.
type Effort = check.Effort

// The bounds of an Effort.
const (
	EffortOfOwner = check.EffortOfOwner
	EffortOfQuery = check.EffortOfQuery
)

// NewEffort returns an effort with a bound.
func NewEffort(most int) *Effort { return check.NewEffort(most) }

// Env compiles expressions. It is immutable and safe for concurrent use.
type Env struct {
	checker         *check.Checker
	names           check.Names
	sources         builtin.Sources
	cluster         ref.Val
	ops             []ref.Val // by event.Op
	resolutionError reflect.Type
	evaluations     sync.Pool // of *evaluation
}

// NewEnv prepares the environment and compiles the defines, whether they are used or not. If some
// of them have mistakes for all types of objects, the error has one *[celerr.CompileError] for
// each, with Define set: split them with [celerr.CompileErrors].
func NewEnv(cfg EnvConfig) (*Env, error) {
	base, err := cel.NewEnv(slices.Concat(check.Libraries(), builtin.Functions(), builtin.EventFunctions())...)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	c, err := check.New(base, cfg.Types, cfg.Define, cfg.Effort)
	if err != nil {
		return nil, err
	}
	env := newEnv(base, c, cfg.Cluster)
	env.names = check.Names{Indexes: cfg.Sources, Owners: slices.Sorted(maps.Keys(cfg.Owners)), ManagedFields: cfg.ManagedFields, Missing: cfg.Missing}
	env.sources.Owners = cfg.Owners
	for _, op := range event.Ops() {
		env.ops = append(env.ops, types.String(op.String()))
	}
	return env, nil
}

func newEnv(base *cel.Env, c *check.Checker, cluster string) *Env {
	return &Env{
		evaluations: sync.Pool{New: func() any { return new(evaluation) }},
		checker:     c,
		sources:     builtin.Sources{Infos: c.Infos},
		cluster:     types.String(cluster),
		ops:         []ref.Val{types.String("")},
		resolutionError: resolutionError(
			interpreter.NewAttributeFactory(base.Container, base.CELTypeAdapter(), base.CELTypeProvider())),
	}
}
