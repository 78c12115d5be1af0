package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Rights implements [plugins.RightsRequester]. It returns the rights that the sink needs in the
// router's own cluster. With a kubeconfig of its own it returns none, because Probe tests them.
func (kind) Rights(node config.Node) []plugins.Right {
	var c sinkConfig
	if len(node.Decode(&c)) > 0 || c.Kubeconfig != "" || c.Context != "" {
		return nil
	}
	return c.rights(node)
}

// rights returns the rights that the grants need.
func (c *sinkConfig) rights(node config.Node) (all []plugins.Right) {
	items := node.At("allow").Items()
	for i := range c.Allow {
		at := node.At("allow")
		if i < len(items) {
			at = items[i].At("resource")
		}
		for _, r := range c.Allow[i].rights() {
			r.Node = at
			all = append(all, r)
		}
	}
	return all
}

// rights returns the rights that a grant needs.
func (g *grantConfig) rights() (all []plugins.Right) {
	group, version, resource, err := parseResource(g.Resource)
	if err != nil {
		return nil
	}
	all = []plugins.Right{{Verb: "get", Path: strings.Join(base(group, version), "/")}}
	namespaces := g.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	if g.NamespaceSelector != "" {
		all = append(all, plugins.Right{Verb: "get", Resource: "namespaces"})
	}
	for _, namespace := range namespaces {
		all = append(all, g.rightsIn(namespace, group, resource)...)
	}
	return all
}

// rightsIn returns the rights that a grant on a resource needs in a namespace; empty: in all. The
// rights to read are optional.
func (g *grantConfig) rightsIn(namespace, group, resource string) (all []plugins.Right) {
	places := []string{resource}
	if len(g.Subresources) > 0 {
		places = nil
		for _, sub := range g.Subresources {
			places = append(places, resource+"/"+sub)
		}
	}
	for _, verb := range g.Verbs {
		for _, place := range places {
			all = append(all, rightsOf(verb, plugins.Right{Group: group, Resource: place, Namespace: namespace})...)
		}
		if verb != verbCreate && verb != verbEvent {
			all = append(all, plugins.Right{Verb: "get", Group: group, Resource: resource, Namespace: namespace, Optional: true})
		}
	}
	for i := range all {
		all[i].Selected = g.NamespaceSelector != "" && all[i].Namespace == ""
	}
	return all
}

// rightsOf returns the rights to execute a verb on a resource or subresource.
func rightsOf(verb string, on plugins.Right) []plugins.Right {
	with := func(verb string) plugins.Right {
		on.Verb = verb
		return on
	}
	isNamespaces := on.Group == "" && on.Resource == "namespaces"
	switch verb {
	case verbApply:
		if strings.Contains(on.Resource, "/") {
			return []plugins.Right{with("patch")}
		}
		return []plugins.Right{with("patch"), with("create")}
	case verbMerge, verbJSON:
		return []plugins.Right{with("patch")}
	case verbEvict:
		on.Group, on.Resource = "", "pods/eviction"
		return []plugins.Right{with("create")}
	case verbEvent:
		// The Events about objects outside of namespaces are in the namespace default. The API
		// server is known to have some kinds of them.
		if isNamespaces || on.Group == "" && (on.Resource == "nodes" || on.Resource == "persistentvolumes") {
			on.Namespace = metav1.NamespaceDefault
		}
		on.Group, on.Resource = "events.k8s.io", "events"
		return []plugins.Right{with("create")}
	case verbCreate:
		if isNamespaces {
			// the request is in no namespace, although a Namespace counts as being in itself
			on.Namespace = ""
		}
	}
	return []plugins.Right{with(verb)}
}

// Probe implements [plugins.Prober]. With a kubeconfig of its own, it asks that API server for each
// right that the grants need. It creates nothing there.
func (kind) Probe(ctx context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	if c.Kubeconfig == "" && c.Context == "" {
		return nil
	}
	a, err := newAPI(&c, plugins.SinkEnv{})
	if err != nil {
		return err
	}
	defer a.close()
	var lacking []string
	asked := make(map[plugins.Right]bool)
	for _, r := range c.rights(node) {
		place := r.Node
		r.Node = config.Node{}
		if r.Optional || r.Selected || asked[r] {
			continue
		}
		asked[r] = true
		ok, err := a.may(ctx, r)
		if err != nil {
			return err
		}
		if !ok {
			lacking = append(lacking, fmt.Sprintf("%s: may not %s", place.Path(), describeRight(r)))
		}
	}
	if len(lacking) > 0 {
		return errors.New(strings.Join(lacking, "; "))
	}
	return nil
}

func describeRight(r plugins.Right) string {
	text := r.Verb + " " + r.Resource + r.Path
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// may asks whether the user of the kubeconfig has a right.
func (a *api) may(ctx context.Context, r plugins.Right) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	attributes, values := "resourceAttributes", map[string]string{
		"namespace": r.Namespace, "verb": r.Verb, "group": r.Group, "resource": resource, "subresource": sub,
	}
	if r.Resource == "" {
		attributes, values = "nonResourceAttributes", map[string]string{"path": r.Path, "verb": r.Verb}
	}
	question := encode(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{attributes: values},
	})
	text, err := a.do(ctx, a.client.Verb(http.MethodPost).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(question))
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return answer.Status.Allowed, err
}
