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
			"the rights of the router were not checked, because its access review failed: %v", a.failed)}}}
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
	without                     string
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
		if a.has(ctx, n.Right) {
			continue
		}
		key := in{of{n.Place, n.Optional || n.Selected, n.Group, n.Resource, n.Name, n.Path, n.Without}, n.Namespace}
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
func (a *access) has(ctx context.Context, r authz.Right) bool {
	allowed, asked := a.answers[r]
	if !asked && a.failed == nil {
		if allowed, a.failed = a.client.Allowed(ctx, r); a.failed == nil {
			if a.answers[r] = allowed; !allowed {
				a.lacking = append(a.lacking, r)
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
	return fmt.Sprintf("the router may not %s %s%s; the rules below allow it", strings.Join(m.verbs, " and "), what, m.without)
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
