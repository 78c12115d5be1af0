package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

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
		g := &c.Allow[i]
		at := node.At("allow")
		if i < len(items) {
			at = items[i].At("resource")
		}
		namespaces := g.Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		if g.NamespaceSelector != "" {
			all = append(all, plugins.Right{Verb: "get", Resource: "namespaces", Node: at})
		}
		for _, namespace := range namespaces {
			for _, r := range g.rights() {
				r.Namespace, r.Node = namespace, at
				// it may exist in the selected namespaces only
				r.Optional = r.Optional || g.NamespaceSelector != ""
				all = append(all, r)
			}
		}
	}
	return all
}

// rights returns the rights that a grant needs in each namespace. The rights to read are optional.
func (g *grantConfig) rights() (all []plugins.Right) {
	group, _, resource, err := parseResource(g.Resource)
	if err != nil {
		return nil
	}
	add := func(verb, group, resource string, optional bool) {
		all = append(all, plugins.Right{Verb: verb, Group: group, Resource: resource, Optional: optional})
	}
	places := []string{resource}
	if len(g.Subresources) > 0 {
		places = nil
		for _, sub := range g.Subresources {
			places = append(places, resource+"/"+sub)
		}
	}
	for _, verb := range g.Verbs {
		for _, place := range places {
			switch verb {
			case verbApply:
				if add("patch", group, place, false); len(g.Subresources) == 0 {
					add("create", group, place, false)
				}
			case verbMerge, verbJSON:
				add("patch", group, place, false)
			case verbCreate, verbDelete:
				add(verb, group, place, false)
			case verbEvict:
				add("create", "", "pods/eviction", false)
			case verbEvent:
				add("create", "events.k8s.io", "events", false)
			}
		}
		if verb != verbCreate && verb != verbEvent {
			add("get", group, resource, true)
		}
	}
	return all
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
		if r.Optional || asked[r] {
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
	text := r.Verb + " " + r.Resource
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
	question := encode(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{
			"namespace": r.Namespace, "verb": r.Verb, "group": r.Group, "resource": resource, "subresource": sub,
		}},
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
