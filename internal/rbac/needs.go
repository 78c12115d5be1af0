// Package rbac knows the rights that a configuration needs in its cluster, and writes them as rules
// of Kubernetes RBAC.
package rbac

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Need is a right that a part of a configuration needs.
type Need struct {
	authz.Right

	Place config.Problem // the position of the part; it has no message
	// Optional: the part works without the right. Without is then the effect, to follow "the router
	// may not get pods".
	Optional bool
	Without  string
	// Selected: the right is needed only in the namespaces that a label selector finds. They are
	// known in the cluster only, so Namespace is empty.
	Selected bool
	// When is set if the right depends on the content of written objects, see [plugins.NeededRight].
	When string
}

// Of returns the rights that a configuration needs. There is no other list of them: a part of the
// router that makes requests to the API server adds its rights here or, as a kind of handler or
// sink, to [plugins.RightsRequester]. It leaves out the parts with mistakes. own is the namespace
// of the router's pod; empty: it runs in none.
func Of(cfg *config.Config, components compile.Components, own string) (all []Need) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		all = append(all, sourceNeeds(cfg.Sources[name])...)
	}
	all = append(all, componentNeeds(cfg.Handlers, components.Handlers)...)
	all = append(all, componentNeeds(cfg.Sinks, components.Sinks)...)
	return append(all, featureNeeds(cfg, own)...)
}

// featureNeeds returns the rights of the parts of the router that are neither sources nor
// components.
func featureNeeds(cfg *config.Config, own string) (all []Need) {
	if cfg.Listen.Access != "" {
		place := config.Problem{Path: "listen.access"}
		all = append(all, Need{Right: authz.Right{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, Place: place},
			Need{Right: authz.Right{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, Place: place})
	}
	optional := func(is bool, r authz.Right, without string) {
		if is {
			all = append(all, Need{Right: r, Place: config.Problem{Path: "cluster"}, Optional: true, Without: without})
		}
	}
	optional(true, informer.IdentityRight(), ", whose uid identifies the cluster: it would not notice another cluster at this address")
	optional(cfg.Cluster.Events && own != "", authz.Right{Verb: "create", Resource: "events", Namespace: own},
		", so its pod has no Events")
	all = append(all, fleetNeeds(cfg.Fleet, own)...)
	return append(all, objectNeeds(&cfg.CustomResources)...)
}

// fleetNeeds returns the rights on the Lease that elects the leader. A right to create cannot name
// an object. Workers need no rights in the cluster.
func fleetNeeds(f *config.Fleet, own string) (all []Need) {
	if f == nil {
		return nil
	}
	for _, verb := range []string{"get", "create", "patch"} {
		r := authz.Right{
			Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: cmp.Or(own, "default"), Name: fleet.NamesOf(f.Name).Lease(),
		}
		if verb == "create" {
			r.Name = ""
		}
		all = append(all, Need{Right: r, Place: f.Node.Problemf(""), Without: ", by which the members of the fleet elect their leader"})
	}
	return all
}

// objectNeeds returns the rights for the routes that are objects of the cluster.
func objectNeeds(granted *config.CustomResources) (all []Need) {
	of := func(resource string, namespaces []string, grant *config.Grant) {
		spec := informer.Spec{Resource: schema.GroupVersionResource{Group: crds.Group, Version: crds.Version, Resource: resource}}
		place := grant.Node.Problemf("")
		for _, spec.Namespace = range namespaces {
			needed, _ := spec.Rights()
			for _, r := range needed {
				all = append(all, Need{Right: r, Place: place, Without: "; so it has no routes of these objects"})
			}
			write := authz.Right{Verb: "patch", Group: crds.Group, Resource: resource + "/status", Namespace: spec.Namespace}
			all = append(all, Need{Right: write, Place: place, Optional: true, Without: "; so the objects have no status"})
		}
		if r, ok := spec.DefinitionRight(); ok {
			all = append(all, Need{
				Right: r, Place: place, Optional: true, Without: ": if the API server stops serving this resource, it takes the objects for deleted",
			})
		}
	}
	if g := granted.Routes; g != nil {
		namespaces := g.Namespaces
		if g.AllNamespaces() {
			namespaces = []string{""}
		}
		of("routes", namespaces, g)
	}
	if g := granted.ClusterRoutes; g != nil {
		of("clusterroutes", []string{""}, g)
	}
	return all
}

// sourceNeeds returns the rights of a source. A source is useless without list, watch and
// discovery.
func sourceNeeds(source *config.Source) (all []Need) {
	watches, err := informer.SpecsOf(source)
	if err != nil {
		return nil
	}
	place := source.At("resource").Problemf("")
	optional := func(r authz.Right, without string) {
		all = append(all, Need{Right: r, Place: place, Optional: true, Without: without})
	}
	for i := range watches {
		needed, cheaper := watches[i].Rights()
		for _, r := range needed {
			all = append(all, Need{Right: r, Place: place})
		}
		for _, r := range cheaper {
			optional(r, "; so it needs lists to distinguish deleted from deselected objects, which cost more")
		}
	}
	if of, ok := watches[0].Namespaces(); ok {
		all = append(all, selectorNeeds(&of, source.At("namespaceSelector").Problemf(""))...)
	}
	optional(informer.OpenAPIRight(watches[0].Resource.Group, watches[0].Resource.Version), ": field names of these objects are not checked")
	if r, ok := watches[0].DefinitionRight(); ok {
		optional(r, ": if the API server stops serving this resource, it takes the objects for deleted")
	}
	return all
}

// selectorNeeds returns the rights to follow the namespaces of a namespaceSelector.
func selectorNeeds(of *informer.Spec, place config.Problem) (all []Need) {
	needed, _ := of.Rights()
	for _, r := range needed {
		all = append(all, Need{Right: r, Place: place})
	}
	return append(all, Need{
		Right: authz.Right{Verb: "get", Resource: "namespaces"}, Place: place, Optional: true,
		Without: "; so it needs lists to distinguish deleted namespaces from deselected ones, which cost more",
	})
}

// componentNeeds returns the rights that the kinds of the components request. It skips invalid
// configurations, which the kinds cannot interpret.
func componentNeeds[T, E any](configured map[string]*config.Component, kinds []plugins.Kind[T, E]) (all []Need) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		kind := compile.KindOf(kinds, c.Kind)
		requester, ok := kind.(plugins.RightsRequester)
		if !ok || len(kind.Check(c.Config)) > 0 {
			continue
		}
		for _, r := range requester.Rights(c.Config) {
			all = append(all, Need{Right: named(r.Right), Place: r.Node.Problemf(""), Optional: r.Optional, Selected: r.Selected, When: r.When})
		}
	}
	return all
}

// named returns a right on the Namespace objects in a namespace as one on the only such object.
func named(r authz.Right) authz.Right {
	if r.OnNamespaces() && r.Namespace != "" {
		r.Name = r.Namespace
	}
	return r
}

// File returns the rights that a configuration file needs, see [Of]. The error has all mistakes of
// the configuration that can be found without running it; schemas is a folder of saved schemas, or
// empty.
func File(ctx context.Context, path, schemas, own string, components compile.Components) ([]Need, error) {
	cfg, problems := config.Load(path, components.Policy)
	if cfg == nil {
		return nil, problems
	}
	if schemas == "" {
		schemas = cfg.Schemas
	}
	known, err := compile.SavedSchemas(schemas)
	if err != nil {
		return nil, err
	}
	known.Learn(cfg, true)
	if _, problems = compile.NewPlan(ctx, cfg, problems, components, known, false); len(problems) > 0 {
		return nil, problems.Sorted()
	}
	return Of(cfg, components, own), nil
}

// Select replaces the needs in selected namespaces by needs in these namespaces.
func Select(needs []Need, namespaces []string) (all []Need) {
	for _, n := range needs {
		if !n.Selected {
			all = append(all, n)
			continue
		}
		n.Selected = false
		for _, n.Namespace = range namespaces {
			n.Right = named(n.Right)
			all = append(all, n)
		}
	}
	return all
}

// Rights returns the rights of the needs, except those that depend on the content of objects, see
// [Conditional]. Without discovery it leaves out those to read discovery and schemas, which
// clusters give to every account by default.
func Rights(needs []Need, discovery bool) (all []authz.Right) {
	for i := range needs {
		if needs[i].When == "" && (discovery || needs[i].Path == "") {
			all = append(all, needs[i].Right)
		}
	}
	return all
}

// Conditional returns the rights that depend on the content of written objects. An operator decides
// about them, see [plugins.NeededRight].
func Conditional(needs []Need) (all []authz.Right) {
	for i := range needs {
		if needs[i].When != "" {
			all = append(all, needs[i].Right)
		}
	}
	return all
}

// Reasons returns for what content these rights are required, each once.
func Reasons(needs []Need) (all []string) {
	for i := range needs {
		if when := needs[i].When; when != "" && !slices.Contains(all, when) {
			all = append(all, when)
		}
	}
	return all
}
