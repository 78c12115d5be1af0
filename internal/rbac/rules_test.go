package rbac_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/authz"
)

// TestRulesGrantExactlyTheRights shows for random rights that their rules grant each of them and
// nothing else, that no rule is needless, and that the order of the rights makes no difference.
func TestRulesGrantExactlyTheRights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rights := rapid.SliceOfN(rapid.Custom(aRight), 1, 25).Draw(t, "rights")
		rules := rbac.RulesOf(rights)
		for _, r := range rights {
			if !grants(rules, r) {
				t.Fatalf("%+v is not granted by %v", r, rules)
			}
		}
		granted := rightsIn(rules)
		for i, r := range granted {
			if !slices.ContainsFunc(rights, func(asked authz.Right) bool { return isOne(asked, r) }) {
				t.Fatalf("%+v is granted and was not asked for", r)
			}
			if slices.ContainsFunc(slices.Delete(slices.Clone(granted), i, i+1), func(other authz.Right) bool { return covers(other, r) }) {
				t.Fatalf("%+v is granted twice: %v", r, rules)
			}
		}
		if again := rbac.RulesOf(rapid.Permutation(slices.Concat(rights, rights)).Draw(t, "order")); !reflect.DeepEqual(again, rules) {
			t.Fatalf("in another order: %v, not %v", again, rules)
		}
	})
}

// aRight draws one of few rights, so that many have something in common.
func aRight(t *rapid.T) authz.Right {
	if rapid.IntRange(0, 9).Draw(t, "path") == 0 {
		return authz.Right{Verb: "get", Path: rapid.SampledFrom([]string{"/api/v1", "/apis/apps/v1"}).Draw(t, "of")}
	}
	r := authz.Right{
		Verb:      rapid.SampledFrom([]string{"get", "list", "watch"}).Draw(t, "verb"),
		Group:     rapid.SampledFrom([]string{"", "apps"}).Draw(t, "group"),
		Resource:  rapid.SampledFrom([]string{"pods", "pods/status", "namespaces"}).Draw(t, "resource"),
		Name:      rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name"),
		Namespace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "namespace"),
	}
	if r.Group == "" && r.Resource == "namespaces" {
		r.Name = r.Namespace // as a request to a Namespace
	}
	return r
}

// rightsIn returns each right that rules grant.
func rightsIn(rules rbac.Rules) (all []authz.Right) {
	for namespace, list := range rules {
		for _, rule := range list {
			for _, verb := range rule.Verbs {
				for _, path := range rule.NonResourceURLs {
					all = append(all, authz.Right{Verb: verb, Path: path})
				}
				for _, resource := range rule.Resources {
					names := rule.ResourceNames
					if len(names) == 0 {
						names = []string{""}
					}
					for _, name := range names {
						for _, group := range rule.APIGroups {
							all = append(all, authz.Right{Verb: verb, Group: group, Resource: resource, Name: name, Namespace: namespace})
						}
					}
				}
			}
		}
	}
	return all
}

func grants(rules rbac.Rules, r authz.Right) bool {
	return slices.ContainsFunc(rightsIn(rules), func(granted authz.Right) bool { return covers(granted, r) })
}

// covers reports whether a right includes another one.
func covers(broad, narrow authz.Right) bool {
	return broad.Verb == narrow.Verb && broad.Group == narrow.Group && broad.Resource == narrow.Resource && broad.Path == narrow.Path &&
		(broad.Name == "" || broad.Name == narrow.Name) && (broad.Namespace == "" || broad.Namespace == narrow.Namespace)
}

// isOne reports whether a granted right is the one that was asked for. A Namespace is in no
// namespace there.
func isOne(asked, granted authz.Right) bool {
	if asked.Group == "" && asked.Resource == "namespaces" {
		asked.Namespace = ""
	}
	return asked == granted
}
