package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/deltarouter/deltarouter/pkg/authz"
)

// Rule is a rule of Kubernetes RBAC.
type Rule = rbacv1.PolicyRule

// Rules has the rules of a Role by its namespace, and those of a ClusterRole under "".
type Rules map[string][]Rule

// Cluster returns the rules of the ClusterRole, never nil.
func (r Rules) Cluster() []Rule { return append([]Rule{}, r[""]...) }

// Namespaced returns the rules of the Roles by namespace, never nil.
func (r Rules) Namespaced() map[string][]Rule {
	roles := make(map[string][]Rule, len(r))
	for namespace, rules := range r {
		if namespace != "" {
			roles[namespace] = rules
		}
	}
	return roles
}

// RulesOf returns the rules that grant exactly these rights, in a fixed order and without
// repetitions.
func RulesOf(rights []authz.Right) Rules {
	all := make(map[authz.Right]bool, len(rights))
	for _, r := range rights {
		if r.OnNamespaces() && r.Name == r.Namespace {
			r.Namespace = "" // a ClusterRole can name a Namespace, and needs no Role in it
		}
		all[r] = true
	}
	byNamespace := make(map[string][]authz.Right)
	for r := range all {
		if !isCovered(r, all) {
			byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
		}
	}
	rules := make(Rules, len(byNamespace))
	for namespace, rights := range byNamespace {
		rules[namespace] = rulesOf(rights)
	}
	return rules
}

// isCovered reports whether all has the right also in all namespaces, or for all objects.
func isCovered(r authz.Right, all map[authz.Right]bool) bool {
	everywhere, unnamed, both := r, r, r
	everywhere.Namespace, both.Namespace = "", ""
	unnamed.Name, both.Name = "", ""
	return everywhere != r && all[everywhere] || unnamed != r && all[unnamed] || both != r && all[both]
}

// rulesOf returns the rules of one role. Each step combines rules that differ in one list only, so
// no combination adds a right.
func rulesOf(rights []authz.Right) []Rule {
	var rules []Rule
	for _, r := range rights {
		rule := Rule{Verbs: []string{r.Verb}}
		if r.Resource == "" {
			rule.NonResourceURLs = []string{r.Path}
		} else {
			rule.APIGroups, rule.Resources = []string{r.Group}, []string{r.Resource}
		}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		rules = append(rules, rule)
	}
	for _, list := range []func(*Rule) *[]string{
		func(r *Rule) *[]string { return &r.Verbs },
		func(r *Rule) *[]string { return &r.ResourceNames },
		func(r *Rule) *[]string { return &r.NonResourceURLs },
		func(r *Rule) *[]string { return &r.Resources },
	} {
		rules = combine(rules, list)
	}
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(orderOf(&a), orderOf(&b)) })
	return rules
}

// combine makes one rule of those that differ in one list only, if the list is not empty.
func combine(rules []Rule, list func(*Rule) *[]string) []Rule {
	combined := make(map[string]Rule)
	for _, rule := range rules {
		values := *list(&rule)
		rest := rule
		*list(&rest) = values[:min(len(values), 0)]
		key := orderOf(&rest)
		if len(values) == 0 {
			key += "\x00none"
		}
		if old, ok := combined[key]; ok {
			values = slices.Concat(values, *list(&old))
		}
		values = slices.Compact(slices.Sorted(slices.Values(values)))
		*list(&rest) = values
		combined[key] = rest
	}
	return slices.Collect(maps.Values(combined))
}

// orderOf returns a text by which rules are sorted: rules for paths come last.
func orderOf(r *Rule) string {
	var b strings.Builder
	for _, list := range [][]string{r.NonResourceURLs, r.APIGroups, r.Resources, r.ResourceNames, r.Verbs} {
		b.WriteString(strings.Join(list, "\x01") + "\x00")
	}
	return b.String()
}
