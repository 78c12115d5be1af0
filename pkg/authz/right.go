// Package authz has the type of a permission at the API server.
package authz

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Right is a permission at the API server. Rights are comparable.
type Right struct {
	Verb      string // get, list, watch, create, update, patch, delete
	Group     string
	Resource  string // a subresource follows the resource: pods/eviction; empty: see Path
	Namespace string // empty: all, or the resource has none
	Name      string // of the only object; empty: all objects
	Path      string // a path instead of a resource, as in /apis/apps/v1
}

// String describes the right, as in: list secrets in namespace "ops".
func (r Right) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	resource, sub, _ := strings.Cut(r.Resource, "/")
	text := r.Verb + " " + resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if sub != "" {
		text += "/" + sub
	}
	if r.Name != "" {
		text += fmt.Sprintf(" %q", r.Name)
	}
	switch {
	case r.Namespace != "":
		return fmt.Sprintf("%s in namespace %q", text, r.Namespace)
	case r.OnNamespaces():
		return text
	}
	return text + " in all namespaces"
}

// OnNamespaces reports whether the right is about Namespace objects, which are in no namespace.
func (r Right) OnNamespaces() bool {
	return r.Group == "" && (r.Resource == "namespaces" || strings.HasPrefix(r.Resource, "namespaces/"))
}

// Attributes returns the right as a question to the API server has it: on a resource, or on a path.
// The other one is nil.
func (r Right) Attributes() (*authorizationv1.ResourceAttributes, *authorizationv1.NonResourceAttributes) {
	if r.Resource == "" {
		return nil, &authorizationv1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
	}
	resource, sub, _ := strings.Cut(r.Resource, "/")
	return &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
	}, nil
}
