package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
)

const granting = `version: 1
state: {dir: ./state}
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
sinks: {out: {stdout: {}}, slack: {stdout: {}}}
customResources:
  routes: {namespaces: [payments], sources: [pods], sinks: [slack]}
`

// TestObjectLimits shows that objects beyond a limit are rejected before they are read, and that
// those with mistakes count too. The limit of one namespace does not concern others.
func TestObjectLimits(t *testing.T) {
	large := strings.Repeat("# "+strings.Repeat("x", 1020)+"\n", 1000)
	for _, c := range []struct {
		name             string
		namespaces, each int
		spec             string
		want             string // the number of mistakes by their last words
	}{
		{"wrong ones of a namespace", 1, 1002, "{from: [pods]}", "map[objects of ns0: remove some:2 to is missing:1000]"},
		{"those of other namespaces", 2, 700, "{from: [pods]}", "map[to is missing:1400]"},
		{"wrong ones of all namespaces", 6, 900, "{from: [pods]}", "map[of all namespaces: remove some:400 to is missing:5000]"},
		{"the size of those of a namespace", 1, 6, "{from: [pods]}\n" + large, "map[to is missing:4 together: remove some:2]"},
		{"the size of all", 9, 2, "{from: [pods]}\n" + large, "map[of all namespaces: remove some:2 to is missing:16]"},
	} {
		var all []*config.Fragment
		for ns := range c.namespaces {
			for i := range c.each {
				name, in := fmt.Sprint("r", i), fmt.Sprint("ns", ns)
				all = append(all, &config.Fragment{
					Name: "route/" + name + " -n " + in, Object: &config.ObjectRef{Namespace: in, Name: name},
					Data: fmt.Appendf(nil, "metadata: {name: %s}\nspec: %s", name, c.spec),
				})
			}
		}
		granted := strings.Replace(granting, "namespaces: [payments]", `namespaces: ["*"]`, 1)
		_, problems := config.Parse("config.yaml", []byte(granted), config.Policy{}, all...)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		got := make(map[string]int)
		for _, f := range all {
			for _, end := range []string{"to is missing", "objects of ns0: remove some", "together: remove some", "of all namespaces: remove some"} {
				if strings.HasSuffix(f.Problems[len(f.Problems)-1].Message, end) {
					got[end]++
				}
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: got %v, want %s: %v", c.name, got, c.want, all[len(all)-1].Problems)
		}
	}
}

// TestObjects shows the names, the scope, and the mistakes of routes that are objects. The
// positions are those in the YAML of the object.
func TestObjects(t *testing.T) {
	const all = "  clusterRoutes: {namespaces: [\"*\"], sources: [nodes], sinks: [out]}\n"
	for _, c := range []struct{ name, more, namespace, spec, want string }{
		{name: "a route", namespace: "payments", spec: "{from: [pods], to: [slack]}", want: "payments/web sees payments from pods to slack"},
		{name: "a cluster route", more: all, spec: "{from: [nodes], to: [out]}", want: "clusterRoutes/web sees * from nodes to out"},
		{name: "a list of one", namespace: "payments", spec: "{from: pods, to: slack}", want: "payments/web sees payments from pods to slack"},
		{
			name: "no such source", namespace: "payments", spec: "\n  from:\n  - pod\n  to:\n  - slack",
			want: `route/web -n payments:7:5: spec.from[0]: source "pod" is unknown or not granted; did you mean "pods"?`,
		},
		{
			name: "a source of others", namespace: "payments", spec: "{from: [nodes], to: [slack]}",
			want: `route/web -n payments:5:15: spec.from[0]: source "nodes" is unknown or not granted: config.yaml:6 grants pods; use one of these, or ask for it there`,
		},
		{
			name: "a variable", namespace: "payments", spec: `{from: [pods], to: ["${HOME}"]}`,
			want: "route/web -n payments:5:27: spec.to[0]: has ${…}, and only the configuration may read the environment of the router: write the value",
		},
		{
			name: "a limit", namespace: "payments", spec: "{from: [pods], to: [slack], queue: {disk: 2Gi}}",
			want: "route/web -n payments:5:49: spec.queue.disk: must be at most 1Gi in an object, not 2Gi",
		},
		{
			name: "workers", namespace: "payments", spec: "{from: [pods], to: [slack], workers: {}}",
			want: "route/web -n payments:5:44: spec.workers: workers read files, not the objects of the cluster: remove it, or move the route into the configuration or an included file",
		},
		{name: "another namespace", namespace: "shop", spec: "{from: [pods], to: [slack]}", want: "route/web -n shop: is not granted: config.yaml:6 does not have its namespace"},
		{name: "no grant", spec: "{from: [pods], to: [slack]}", want: "clusterroute/web: is not granted: the configuration of the router has no customResources.clusterRoutes"},
		{name: "no spec", namespace: "payments", spec: "null", want: "route/web -n payments:1:1: spec: to is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind, in := "clusterroute/web", ""
			if c.namespace != "" {
				kind, in = "route/web -n "+c.namespace, ", namespace: "+c.namespace
			}
			f := &config.Fragment{
				Name: kind, Object: &config.ObjectRef{Namespace: c.namespace, Name: "web"},
				Data: fmt.Appendf(nil, "apiVersion: deltarouter.io/v1alpha1\nkind: X\nmetadata: {name: web%s}\n\nspec: %s\n", in, c.spec),
			}
			cfg, problems := config.Parse("config.yaml", []byte(granting+c.more), config.Policy{}, f)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			got := f.Located(f.Problems).Error()
			if len(f.Problems) == 0 {
				r := cfg.Routes[0]
				got = fmt.Sprintf("%s sees %s from %s to %s", r.Name, strings.Join(r.Scope().Namespaces, " "), strings.Join(r.From, " "), r.To[0].Sink)
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}
