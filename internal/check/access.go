package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// access determines the router's rights in the cluster and the missing ones.
type access struct {
	client   *informer.Client
	answers  map[informer.Right]bool
	lacking  []informer.Right
	failed   error // reason why the API server does not answer
	problems config.Problems
	warnings config.Problems
}

// checkAccess asks the API server for each right that the sources and components need. A source is
// useless without list, watch and discovery, so their absence is a problem; all other missing
// rights are warnings.
func checkAccess(ctx context.Context, client *informer.Client, p *compile.Plan, components compile.Components) *access {
	a := &access{client: client, answers: make(map[informer.Right]bool)}
	for _, name := range slices.Sorted(maps.Keys(p.Sources)) {
		a.source(ctx, p.Config.Sources[name], p.Sources[name].Specs)
	}
	askRights(ctx, a, p.Config.Handlers, components.Handlers)
	askRights(ctx, a, p.Config.Sinks, components.Sinks)
	if missing := a.missing(ctx, []informer.Right{informer.IdentityRight()}); len(missing) > 0 {
		a.warnings = append(a.warnings, config.Problem{Path: "cluster", Warning: true, Message: "the router may not get namespace kube-system, whose uid " +
			"identifies the cluster: it would not notice another cluster at this address"})
	}
	if a.failed != nil {
		a.problems, a.lacking = nil, nil
		a.warnings = config.Problems{{Path: "cluster", Warning: true, Message: fmt.Sprintf(
			"the rights of the router were not checked, because its access review failed: %v", a.failed)}}
	}
	return a
}

func (a *access) source(ctx context.Context, source *config.Source, watches []informer.Spec) {
	at := source.At("resource")
	where := make(map[string][]string) // namespaces by missing right
	var order []string
	for i := range watches {
		needed, optional := watches[i].Rights()
		for kind, rights := range [][]informer.Right{needed, optional} {
			missing := a.missing(ctx, rights)
			if len(missing) == 0 {
				continue
			}
			what := string(rune('0'+kind)) + describeRights(missing)
			if where[what] == nil {
				order = append(order, what)
			}
			where[what] = append(where[what], watches[i].Namespace)
		}
	}
	for _, what := range order {
		in := ""
		if names := where[what]; names[0] != "" {
			in = " in " + strings.Join(names, ", ")
		}
		if what[0] == '0' {
			a.problems = append(a.problems, at.Problemf("the router may not %s%s; the rules below allow it", what[1:], in))
			continue
		}
		w := at.Problemf("the router may not %s%s; so it needs lists to distinguish deleted from deselected objects, "+
			"which cost more; the rules below allow it", what[1:], in)
		w.Warning = true
		a.warnings = append(a.warnings, w)
	}
	group, version, _, err := config.ParseResource(source.Resource)
	if err == nil && len(a.missing(ctx, []informer.Right{informer.OpenAPIRight(group, version)})) > 0 {
		w := at.Problemf("the router may not get %s: field names of these objects are not checked; the rules below allow it",
			informer.OpenAPIRight(group, version).Path)
		w.Warning = true
		a.warnings = append(a.warnings, w)
	}
}

// askRights asks for the rights that the kinds of the components need. It skips invalid
// configurations, which the kinds cannot interpret.
func askRights[T, E any](ctx context.Context, a *access, configured map[string]*config.Component, kinds []plugins.Kind[T, E]) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		kind := compile.KindOf(kinds, c.Kind)
		if requester, ok := kind.(plugins.RightsRequester); ok && len(kind.Check(c.Config)) == 0 {
			a.component(ctx, requester.Rights(c.Config))
		}
	}
}

// component reports the missing rights of a component at the places that need them.
func (a *access) component(ctx context.Context, rights []plugins.Right) {
	type of struct {
		path, namespace, resource string
		optional                  bool
	}
	missing := make(map[of][]informer.Right)
	places := make(map[of]config.Node)
	var order []of
	for _, r := range rights {
		asked := informer.Right{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace}
		if len(a.missing(ctx, []informer.Right{asked})) == 0 {
			continue
		}
		key := of{r.Node.Path(), r.Namespace, r.Group + "/" + r.Resource, r.Optional}
		if missing[key] == nil {
			order = append(order, key)
			places[key] = r.Node
		}
		if !slices.Contains(missing[key], asked) {
			missing[key] = append(missing[key], asked)
		}
	}
	for _, key := range order {
		in := ""
		if key.namespace != "" {
			in = " in " + key.namespace
		} else if key.optional {
			in = " everywhere"
		}
		problem := places[key].Problemf("the router may not %s%s; the rules below allow it", describeRights(missing[key]), in)
		if problem.Warning = key.optional; key.optional {
			a.warnings = append(a.warnings, problem)
		} else {
			a.problems = append(a.problems, problem)
		}
	}
}

// missing returns the rights that the router does not have.
func (a *access) missing(ctx context.Context, rights []informer.Right) (missing []informer.Right) {
	for _, r := range rights {
		allowed, asked := a.answers[r]
		if !asked && a.failed == nil {
			if allowed, a.failed = a.client.Allowed(ctx, r); a.failed != nil {
				return nil
			}
			if a.answers[r] = allowed; !allowed {
				a.lacking = append(a.lacking, r)
			}
		}
		if a.failed == nil && !allowed {
			missing = append(missing, r)
		}
	}
	return missing
}

// describeRights renders rights as words, such as "list and watch pods".
func describeRights(rights []informer.Right) string {
	var words, verbs []string
	resource := ""
	for _, r := range rights {
		if r.Resource == "" {
			words = append(words, r.Verb+" "+r.Path)
			continue
		}
		verbs = append(verbs, r.Verb)
		if resource = r.Resource; r.Group != "" {
			resource += "." + r.Group
		}
	}
	if len(verbs) > 0 {
		words = slices.Insert(words, 0, strings.Join(verbs, " and ")+" "+resource)
	}
	return strings.Join(words, ", nor ")
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
	byNamespace := make(map[string][]informer.Right)
	for _, r := range a.lacking {
		byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The rights that %s lacks to run %s, for review and kubectl apply by an administrator.\n", user, file)
	for i, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		if i > 0 {
			b.WriteString("---\n")
		}
		role(&b, namespace, byNamespace[namespace], user)
	}
	return b.String()
}

// role writes a role and its binding. The name is derived from the content, so that no other role
// is overwritten.
func role(b *strings.Builder, namespace string, rights []informer.Right, user string) {
	kind, in := "ClusterRole", ""
	if namespace != "" {
		kind, in = "Role", fmt.Sprintf(", namespace: %q", namespace)
	}
	rules := rulesOf(rights)
	sum := sha256.Sum256([]byte(rules + user))
	name := "deltarouter-" + hex.EncodeToString(sum[:4])
	fmt.Fprintf(b, "apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nmetadata: {name: %s%s}\nrules:\n%s---\n", kind, name, in, rules)
	fmt.Fprintf(b, "apiVersion: rbac.authorization.k8s.io/v1\nkind: %sBinding\nmetadata: {name: %s%s}\n", kind, name, in)
	fmt.Fprintf(b, "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}\nsubjects:\n  - %s\n", kind, name, subject(user))
}

// rulesOf writes a rule for each resource.
func rulesOf(rights []informer.Right) string {
	type of struct{ group, resource, name, path string }
	verbs := make(map[of][]string)
	var order []of
	for _, r := range rights {
		key := of{r.Group, r.Resource, r.Name, r.Path}
		if verbs[key] == nil {
			order = append(order, key)
		}
		verbs[key] = append(verbs[key], r.Verb)
	}
	var b strings.Builder
	for _, key := range order {
		switch list := strings.Join(slices.Sorted(slices.Values(verbs[key])), ", "); {
		case key.resource == "":
			fmt.Fprintf(&b, "  - {nonResourceURLs: [%q], verbs: [%s]}\n", key.path, list)
		case key.name != "":
			fmt.Fprintf(&b, "  - {apiGroups: [%q], resources: [%q], resourceNames: [%q], verbs: [%s]}\n", key.group, key.resource, key.name, list)
		default:
			fmt.Fprintf(&b, "  - {apiGroups: [%q], resources: [%q], verbs: [%s]}\n", key.group, key.resource, list)
		}
	}
	return b.String()
}

// subject writes the subject of a binding.
func subject(user string) string {
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok {
			return fmt.Sprintf("{kind: ServiceAccount, name: %q, namespace: %q}", name, namespace)
		}
	}
	return fmt.Sprintf("{kind: User, apiGroup: rbac.authorization.k8s.io, name: %q}", user)
}
