package compile

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
)

// Expressions keeps compiled expressions from one plan to the next, so that a reload compiles only
// those that changed, and compiles a text once that several routes have. It is not safe for
// concurrent use.
type Expressions struct {
	envs map[string]*environment // by the sources and defines
	plan int                     // the number of the plan that is being made
}

// environment is an environment with the programs that were compiled in it.
type environment struct {
	*cel.Env

	of       cel.EnvConfig // without Effort and Missing
	work     int           // of its defines
	programs map[request]*compiled
	plan     int // the last one that used it
}

// request names a program in an environment.
type request struct {
	text  string
	usage cel.Usage
	// sources are those of the expression and, behind a second separator, those of its result.
	sources string
}

// compiled is the answer to a request.
type compiled struct {
	program *cel.Program
	err     error
	work    int
	plan    int // the last one that used it
}

// begin begins a plan, in which the sources have the same types for all environments.
func (k *Expressions) begin() { k.plan++ }

// end forgets all that the last plan did not use.
func (k *Expressions) end() {
	maps.DeleteFunc(k.envs, func(_ string, e *environment) bool { return e.plan != k.plan })
	for _, e := range k.envs {
		maps.DeleteFunc(e.programs, func(_ request, c *compiled) bool { return c.plan != k.plan })
	}
}

// environment returns the environment of a configuration or a fragment, if the effort permits its
// defines.
func (k *Expressions) environment(cfg cel.EnvConfig, effort *cel.Effort) (*environment, error) {
	// The messages of Missing name the granted sources, and so does the message about no name.
	text, err := json.Marshal([]any{cfg.Cluster, slices.Sorted(maps.Keys(cfg.Sources)), cfg.Define, cfg.Missing("")})
	if err != nil {
		return nil, err
	}
	key, of := string(text), cfg
	of.Missing = nil // functions cannot be compared
	if e := k.envs[key]; e != nil && (e.plan == k.plan || reflect.DeepEqual(e.of, of)) {
		if e.plan = k.plan; !effort.Spend(e.work) {
			return nil, effort.Exhausted()
		}
		return e, nil
	}
	e := &environment{of: of, programs: make(map[request]*compiled), plan: k.plan}
	cfg.Effort = cmp.Or(effort, cel.NewEffort(math.MaxInt)) // it counts, too
	before := cfg.Effort.Spent()
	if e.Env, err = cel.NewEnv(cfg); err != nil {
		return nil, err
	}
	e.work = cfg.Effort.Spent() - before
	if k.envs == nil {
		k.envs = make(map[string]*environment)
	}
	k.envs[key] = e
	return e, nil
}

// compile returns the program of an expression, if the effort permits it. of are the sources of the
// objects that are its result; none: its result is no objects.
func (k *Expressions) compile(e *environment, effort *cel.Effort, text string, usage cel.Usage, sources []string, of ...string) (*cel.Program, error) {
	r := request{text, usage, strings.Join(sources, "\x00") + "\x00\x00" + strings.Join(of, "\x00")}
	if c := e.programs[r]; c != nil {
		if c.plan = k.plan; !effort.Spend(c.work) {
			return nil, effort.Exhausted()
		}
		return c.program, c.err
	}
	c := &compiled{plan: k.plan}
	own := cmp.Or(effort, cel.NewEffort(math.MaxInt))
	before := own.Spent()
	if usage == cel.Objects {
		c.program, c.err = e.CompileObjects(own, text, sources[0], of...)
	} else {
		c.program, c.err = e.CompileWithin(own, text, usage, sources...)
	}
	c.work = own.Spent() - before
	if c.err == nil || effort.Spend(0) { // another plan may leave more for it
		e.programs[r] = c
	}
	return c.program, c.err
}
