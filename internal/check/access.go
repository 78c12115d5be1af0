package check

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// access determines the router's rights in the cluster and the missing ones.
type access struct {
	client  *informer.Client
	answers map[authz.Right]bool
	lacking []authz.Right
	failed  error // reason why the API server does not answer
}

// Access asks the API server for each right that a configuration needs. A missing right that the
// configuration cannot work without is a problem, another one is a warning. file is the path of the
// configuration.
func Access(ctx context.Context, client *informer.Client, needs []rbac.Need, file string) (found Findings) {
	a := &access{client: client, answers: make(map[authz.Right]bool)}
	for _, m := range a.missing(ctx, needs) {
		p := m.place
		p.File, p.Warning, p.Message = cmp.Or(p.File, file), m.optional, m.String()
		if m.optional {
			found.Warnings = append(found.Warnings, p)
		} else {
			found.Problems = append(found.Problems, p)
		}
	}
	if a.failed != nil {
		return Findings{Warnings: config.Problems{{File: file, Path: "cluster", Warning: true, Message: fmt.Sprintf(
			"the rights of the router were not checked, because its access review failed: %v", compile.Unanswered(client, a.failed))}}}
	}
	found.Roles = a.roles(ctx, file)
	return found
}

// missingRights are the missing rights of one part of the configuration on one resource or path.
type missingRights struct {
	of

	verbs      []string
	namespaces []string // with the same missing verbs; "" stands for all
}

// of identifies the missing rights with a common message.
type of struct {
	place                       config.Problem
	optional                    bool
	group, resource, name, path string
	without, when               string
}

// missing returns the missing rights in the order of the needs.
func (a *access) missing(ctx context.Context, needs []rbac.Need) (all []*missingRights) {
	type in struct {
		of

		namespace string
	}
	verbs := make(map[in][]string)
	var order []in
	for i := range needs {
		n := &needs[i]
		if a.has(ctx, n) {
			continue
		}
		key := in{of{n.Place, n.Optional || n.Selected, n.Group, n.Resource, n.Name, n.Path, n.Without, n.When}, n.Namespace}
		if verbs[key] == nil {
			order = append(order, key)
		}
		if !slices.Contains(verbs[key], n.Verb) {
			verbs[key] = append(verbs[key], n.Verb)
		}
	}
	for _, key := range order {
		i := slices.IndexFunc(all, func(m *missingRights) bool { return m.of == key.of && slices.Equal(m.verbs, verbs[key]) })
		if i < 0 {
			i, all = len(all), append(all, &missingRights{of: key.of, verbs: verbs[key]})
		}
		all[i].namespaces = append(all[i].namespaces, key.namespace)
	}
	return all
}

// has reports whether the router has a right, or whether that is unknown.
func (a *access) has(ctx context.Context, n *rbac.Need) bool {
	allowed, asked := a.answers[n.Right]
	if !asked && a.failed == nil {
		if allowed, a.failed = a.client.Allowed(ctx, n.Right); a.failed == nil {
			if a.answers[n.Right] = allowed; !allowed && n.When == "" {
				a.lacking = append(a.lacking, n.Right)
			}
		}
	}
	return allowed || a.failed != nil
}

// String describes the missing rights and their effect.
func (m *missingRights) String() string {
	what := m.path + m.resource
	if m.group != "" {
		what += "." + m.group
	}
	switch {
	case m.name != "":
		what += " " + m.name
	case m.namespaces[0] != "":
		what += " in " + strings.Join(m.namespaces, ", ")
	case m.optional && m.resource != "":
		what += " everywhere"
	}
	text := fmt.Sprintf("the router may not %s %s%s", strings.Join(m.verbs, " and "), what, m.without)
	if m.when != "" {
		return fmt.Sprintf("%s, and the API server requires it %s; router rbac prints the rule as a comment: grant it, or write # check: ok if no route "+
			"writes such an object", text, m.when)
	}
	return text + "; the rules below allow it"
}

// conditional warns of the rights that depend on the content of objects. Without a cluster it is
// unknown whether the router has them.
func conditional(needs []rbac.Need) (warnings config.Problems) {
	type at struct {
		place config.Problem
		when  string
	}
	rights := make(map[at][]string)
	var order []at
	for i := range needs {
		n := &needs[i]
		if n.When == "" {
			continue
		}
		key, right := at{n.Place, n.When}, n.Verb+" "+schema.GroupResource{Group: n.Group, Resource: n.Resource}.String()
		if rights[key] == nil {
			order = append(order, key)
		}
		if !slices.Contains(rights[key], right) {
			rights[key] = append(rights[key], right)
		}
	}
	for _, key := range order {
		w := key.place
		w.Warning = true
		w.Message = fmt.Sprintf("the API server requires more than the verbs %s: %s; router rbac prints the rule as a comment, and check -connect finds out "+
			"whether the router has it", key.when, strings.Join(rights[key], ", "))
		warnings = append(warnings, w)
	}
	return warnings
}

// undecided removes the needs that depend on the content of objects and are silenced by
// `# check: ok`.
func undecided(needs []rbac.Need, cfg *config.Config) []rbac.Need {
	return slices.DeleteFunc(needs, func(n rbac.Need) bool {
		return n.When != "" && len(compile.NotSilenced(config.Problems{n.Place}, cfg)) == 0
	})
}

// roles returns manifests with the missing rights for kubectl apply; empty if none is missing.
func (a *access) roles(ctx context.Context, file string) string {
	if len(a.lacking) == 0 {
		return ""
	}
	user, err := a.client.User(ctx)
	if err != nil || user == "" {
		user = "THE-USER-OF-THE-ROUTER"
	}
	manifests, err := rbac.Manifests(rbac.RulesOf(a.lacking), rbac.SubjectOf(user), func(rules []rbac.Rule) string { return roleName(rules, user) })
	if err != nil {
		return fmt.Sprintf("# The roles with the missing rights cannot be written: %v\n", err)
	}
	return fmt.Sprintf("# The rights that %s lacks to run %s, for review and kubectl apply by an administrator.\n%s", user, file, manifests)
}

// roleName derives a name from the content of a role, so that no other role is overwritten.
func roleName(rules []rbac.Rule, user string) string {
	text, _ := json.Marshal(rules) // texts only: never fails
	sum := sha256.Sum256(append(text, user...))
	return "deltarouter-" + hex.EncodeToString(sum[:4])
}
