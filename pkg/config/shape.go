package config

import (
	"reflect"
	"time"

	"gopkg.in/yaml.v3"
)

// Limit says how many deltas of a key a route delivers.
type Limit struct {
	Key   *Expr         `yaml:"key" doc:"CEL, string, int or bool: what is counted. Absent: each object by itself."`
	Every time.Duration `yaml:"every,required" min:"1s" max:"8760h" doc:"How long it takes until one more of a key is delivered."`
	Burst int           `yaml:"burst" default:"1" min:"1" max:"1000000" doc:"How many of a key are delivered at once after a quiet time."`
}

// Debounce is how long nothing may happen to an object until its net change is delivered: a duration, or a form with both.
type Debounce struct {
	Quiet time.Duration // 0: at once
	Max   time.Duration // the longest wait; 0: ten times Quiet
}

// debounceForm is a Debounce that says how long it may take at most.
type debounceForm struct {
	Quiet time.Duration `yaml:"quiet,required" min:"1ms" max:"24h" doc:"How long nothing may happen to an object, or under the key of the route, until its net change is delivered."`
	Max   time.Duration `yaml:"max" min:"1ms" max:"24h" doc:"How long the first change waits at most, if there is no quiet. Absent: ten times quiet."`
}

// Validate checks what the tags cannot say.
func (d *debounceForm) Validate(n Node) (problems Problems) {
	if d.Max > 0 && d.Max < d.Quiet {
		problems = append(problems, n.At("max").Problemf("%s is less than quiet, %s: raise it", d.Max, d.Quiet))
	}
	return problems
}

func (d *Debounce) unmarshal(n Node) Problems {
	if n.yaml == nil {
		return nil
	}
	var form debounceForm
	if !n.IsZero() && n.yaml.Kind == yaml.MappingNode {
		problems := n.Decode(&form)
		*d = Debounce(form)
		return problems
	}
	var quiet decoder
	quiet.value(n, reflect.ValueOf(&form.Quiet).Elem(), fieldsOf(reflect.TypeFor[debounceForm]())[0])
	d.Quiet = form.Quiet
	return quiet.problems
}

// maxWait is how long a batch that is no group may wait.
const maxWait = time.Minute

// checkShape checks what a route waits for.
func (r *Route) checkShape(n Node) (problems Problems) {
	batch := n.At("batch")
	if wait := batch.At("wait"); r.Batch.By == nil && r.Batch.Wait > maxWait {
		problems = append(problems, wait.Problemf("must be at most %s, not %s: a longer time is for groups, see batch.by", "1m", wait.yaml.Value))
	}
	if r.When != nil && r.Debounce.Quiet > 0 {
		problems = append(problems, n.At("debounce").Problemf("is about changes, not about a condition: say with for how long that has to hold"))
	}
	by := batch.At("by")
	if r.Batch.By == nil {
		return problems
	}
	if r.Key != nil {
		problems = append(problems, n.At("key").Problemf("a route has either key or batch.by, which keeps the deltas of a group in order: remove one"))
	}
	if r.Emit == nil && r.Handle == "" {
		problems = append(problems, by.Problemf("groups what makes the events, and without emit or handle each delta is an event of its own: add emit, or remove it"))
	}
	if batch.At("wait").IsZero() && r.Debounce.Quiet == 0 {
		problems = append(problems, by.Problemf("needs to know how long a group is collected: set batch.wait, or debounce"))
	}
	return problems
}
