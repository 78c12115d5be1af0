package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Rights implements [plugins.RightsRequester]. It returns the rights that the sink needs in the
// router's own cluster. With a kubeconfig of its own it returns none, because Probe tests them.
func (kind) Rights(node config.Node) []plugins.NeededRight {
	var c sinkConfig
	if len(node.Decode(&c)) > 0 || c.Kubeconfig != "" || c.Context != "" {
		return nil
	}
	return c.rights(node)
}

// rights returns the rights that the grants need.
func (c *sinkConfig) rights(node config.Node) (all []plugins.NeededRight) {
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
func (g *grantConfig) rights() (all []plugins.NeededRight) {
	group, version, resource, err := parseResource(g.Resource)
	if err != nil {
		return nil
	}
	all = []plugins.NeededRight{{Right: authz.Right{Verb: "get", Path: strings.Join(base(group, version), "/")}}}
	namespaces := g.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	if g.NamespaceSelector != "" {
		all = append(all, plugins.NeededRight{Right: authz.Right{Verb: "get", Resource: "namespaces"}})
	}
	for _, namespace := range namespaces {
		all = append(all, g.rightsIn(namespace, group, resource)...)
	}
	return all
}

// rightsIn returns the rights that a grant on a resource needs in a namespace; empty: in all. The
// rights to read are optional.
func (g *grantConfig) rightsIn(namespace, group, resource string) (all []plugins.NeededRight) {
	places := []string{resource}
	if len(g.Subresources) > 0 {
		places = nil
		for _, sub := range g.Subresources {
			places = append(places, resource+"/"+sub)
		}
	}
	for _, verb := range g.Verbs {
		for _, place := range places {
			on := authz.Right{Group: group, Resource: place, Namespace: namespace}
			for _, r := range rightsOf(verb, on) {
				all = append(all, plugins.NeededRight{Right: r})
			}
			all = append(all, beside(verb, on, g.NamespaceSelector != "")...)
		}
		if verb != verbCreate && verb != verbEvent {
			read := authz.Right{Verb: "get", Group: group, Resource: resource, Namespace: namespace}
			all = append(all, plugins.NeededRight{Right: read, Optional: true})
		}
	}
	for i := range all {
		if all[i].When == "" {
			all[i].Selected = g.NamespaceSelector != "" && all[i].Namespace == ""
		}
	}
	return all
}

// rightsOf returns the rights to execute a verb on a resource or subresource.
func rightsOf(verb string, on authz.Right) []authz.Right {
	with := func(verb string) authz.Right {
		on.Verb = verb
		return on
	}
	isNamespaces := on.Group == "" && on.Resource == "namespaces"
	switch verb {
	case verbApply:
		if strings.Contains(on.Resource, "/") {
			return []authz.Right{with("patch")}
		}
		return []authz.Right{with("patch"), with("create")}
	case verbMerge, verbJSON:
		return []authz.Right{with("patch")}
	case verbEvict:
		on.Group, on.Resource = "", "pods/eviction"
		return []authz.Right{with("create")}
	case verbEvent:
		// The Events about objects outside of namespaces are in the namespace default. The API
		// server is known to have some kinds of them.
		if isNamespaces || on.Group == "" && (on.Resource == "nodes" || on.Resource == "persistentvolumes") {
			on.Namespace = metav1.NamespaceDefault
		}
		on.Group, on.Resource = "events.k8s.io", "events"
		return []authz.Right{with("create")}
	case verbCreate:
		if isNamespaces {
			// the request is in no namespace, although a Namespace counts as being in itself
			on.Namespace = ""
		}
	}
	return []authz.Right{with(verb)}
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
	asked := make(map[authz.Right]bool)
	for _, r := range c.rights(node) {
		if r.Optional || r.Selected || asked[r.Right] {
			continue
		}
		asked[r.Right] = true
		ok, err := a.may(ctx, r.Right)
		if err != nil {
			return err
		}
		if !ok {
			text := fmt.Sprintf("%s: may not %s", r.Node.Path(), r.Right)
			if r.When != "" {
				text += ", and the API server requires it " + r.When
			}
			lacking = append(lacking, text)
		}
	}
	if len(lacking) > 0 {
		return errors.New(strings.Join(lacking, "; "))
	}
	return nil
}

// may asks whether the user of the kubeconfig has a right.
func (a *api) may(ctx context.Context, r authz.Right) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes = r.Attributes()
	text, err := a.do(ctx, a.client.Verb(http.MethodPost).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(encode(&review)))
	if err == nil {
		err = json.Unmarshal(text, &review)
	}
	return review.Status.Allowed, err
}
