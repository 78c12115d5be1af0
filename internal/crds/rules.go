package crds

import (
	"fmt"
	"reflect"

	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Rule is a rule in CEL that the API server checks before it stores an object. The router has the
// same rules for files, see Validate of config.Route and of its parts.
type Rule struct {
	Rule      string `json:"rule"`
	Message   string `json:"message"`
	FieldPath string `json:"fieldPath,omitempty"`
}

// rulesOf returns the rules between the keys of a struct.
func rulesOf(t reflect.Type) []Rule {
	switch t {
	case reflect.TypeFor[config.Route]():
		return routeRules()
	case reflect.TypeFor[config.Batch]():
		return []Rule{{
			Rule:      "has(self.by) || !has(self.wait) || duration(self.wait) <= duration('1m')",
			Message:   "must be at most 1m: a longer time is for groups, see batch.by",
			FieldPath: ".wait",
		}}
	case reflect.TypeFor[config.Retry]():
		return []Rule{{
			Rule: "duration(has(self.max) ? self.max : '" + defaultOf(t, "max") + "') >= " +
				"duration(has(self.backoff) ? self.backoff : '" + defaultOf(t, "backoff") + "')",
			Message:   "is less than backoff: raise it",
			FieldPath: ".max",
		}}
	case reflect.TypeFor[config.DebounceForm]():
		return []Rule{{
			Rule:      "!has(self.max) || duration(self.max) >= duration(self.quiet)",
			Message:   "is less than quiet: raise it",
			FieldPath: ".max",
		}}
	}
	return nil
}

// routeRules are the rules between the keys of a route. for is a word of CEL, so CEL calls that key
// __for__.
func routeRules() []Rule {
	all := conditionRules()
	all = append(all, timeRules()...)
	return append(all, groupRules()...)
}

// conditionRules are the rules of routes with when.
func conditionRules() []Rule {
	return []Rule{
		{"!has(self.when) || !has(self.filter)", "a route has either when or filter: join them with &&", ".filter"},
		{"!has(self.emit) || !has(self.handler)", "a route has either emit or handler: remove one", ".emit"},
		{
			"!has(self.when) || !has(self.ops) || self.ops.all(op, op in ['entered', 'left'])",
			"a route with when reports entered and left: write these, or use filter instead of when", ".ops",
		},
		{
			"!has(self.when) || !has(self.overflow) || self.overflow != 'dropOldest'",
			"could lose the report that a condition holds or ended: use coalesce or block", ".overflow",
		},
		{
			"!has(self.when) || !has(self.ops) || 'entered' in self.ops || !has(self.every)",
			"every affects entered, which ops does not contain: add entered, or remove every", ".every",
		},
		{
			"!has(self.when) || !has(self.ops) || 'entered' in self.ops || !has(self.limit)",
			"limit affects entered, which ops does not contain: add entered, or remove limit", ".limit",
		},
		{"!has(self.when) || !has(self.debounce)", "delays changes, and has no effect on a condition: use for instead", ".debounce"},
		{
			"has(self.when) || !has(self.ops) || !self.ops.exists(op, op in ['entered', 'left'])",
			"entered and left need a condition: set when too", ".ops",
		},
		{"has(self.when) || !has(self.every)", "every needs a condition: set when too, or remove it", ".every"},
		{"has(self.when) || !has(self.reevaluate)", "reevaluate needs a condition: set when too, or remove it", ".reevaluate"},
	}
}

// timeRules are the rules about durations.
func timeRules() []Rule {
	return []Rule{
		{
			"has(self.when) || !has(self.__for__) || has(self.ops) && self.ops.all(op, op in ['deleted', 'deselected'])",
			"is the duration of a condition or of an absence: set when too, or ops: [deleted]", ".for",
		},
		{
			"has(self.when) || !has(self.__for__) || !has(self.watches)",
			"repeats existing objects, but with for the route reports deleted objects: remove one", ".watches",
		},
		{
			"!has(self.maxAge) || !has(self.debounce) || duration(self.maxAge) > duration(self.debounce.quiet)",
			"is not longer than the quiet period, so every delta would be too old: raise it", ".maxAge",
		},
		{
			"!has(self.maxAge) || has(self.debounce) || !has(self.batch) || !has(self.batch.by) || !has(self.batch.wait) || " +
				"duration(self.maxAge) > duration(self.batch.wait)",
			"is not longer than batch.wait, so deltas of a group could be too old: raise it", ".maxAge",
		},
	}
}

// groupRules are the rules of routes with batch.by.
func groupRules() []Rule {
	const by = "!has(self.batch) || !has(self.batch.by) || "
	return []Rule{
		{by + "!has(self.key)", "a route has either key or batch.by, which keeps the deltas of a group in order: remove one", ".key"},
		{
			by + "has(self.emit) || has(self.handler)",
			"batch.by groups deltas for emit or a handler, and the route has neither: add emit, or remove it", ".batch",
		},
		{
			by + "has(self.batch.wait) || has(self.debounce)",
			"batch.by needs the time for which a group is collected: set batch.wait or debounce", ".batch",
		},
	}
}

// nameRule is the rule about the name of an object, which is a part of the name of its route.
func nameRule() Rule {
	return Rule{
		Rule:    "self.metadata.name.matches('^[a-z][a-z0-9-]{0,62}$')",
		Message: "the name of a route begins with a letter and has only small letters, digits and -, at most 63",
	}
}

// durationRules are the bounds of a duration.
func durationRules(f tags.Field) (all []Rule) {
	if f.Min != "" {
		all = append(all, Rule{Rule: fmt.Sprintf("duration(self) >= duration('%s')", f.Min), Message: "must be at least " + f.Min})
	}
	if f.Max != "" {
		all = append(all, Rule{Rule: fmt.Sprintf("duration(self) <= duration('%s')", f.Max), Message: "must be at most " + f.Max})
	}
	return all
}

// defaultOf returns the default of a key.
func defaultOf(t reflect.Type, key string) string {
	for _, f := range tags.Of(t) {
		if f.Key == key {
			return f.Default
		}
	}
	return ""
}
