package informer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// Rights returns the rights that the watch needs. Without the needed rights it does not work;
// without the optional ones it works at a higher cost.
func (s *Spec) Rights() (needed, optional []authz.Right) {
	right := func(verb string) authz.Right {
		return authz.Right{Verb: verb, Group: s.Resource.Group, Resource: s.Resource.Resource, Name: s.onlyName(), Namespace: s.Namespace}
	}
	needed = []authz.Right{right("list"), right("watch"), discoveryRight(s.Resource.Group, s.Resource.Version)}
	if s.Selective() {
		optional = []authz.Right{right("get")} // see Inquiry.Exists
	}
	return needed, optional
}

// onlyName returns the name of the only object that the watch requests; empty: it requests all. The
// API server authorizes lists and watches with such a field selector for this name. A selective
// watch also makes requests without its selectors.
func (s *Spec) onlyName() string {
	if s.Selective() {
		return ""
	}
	selector, err := fields.ParseSelector(s.FieldSelector)
	if err != nil {
		return ""
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// DefinitionRight returns the right to read the CustomResourceDefinition of the resource. If the
// API server stops serving the resource, the definition tells whether the objects still exist. ok
// is false for a resource of Kubernetes itself, which has no definition.
func (s *Spec) DefinitionRight() (r authz.Right, ok bool) {
	group := s.Resource.Group
	if !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
		return authz.Right{}, false
	}
	name := s.Resource.Resource + "." + group
	return authz.Right{Verb: "get", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: name}, true
}

// discoveryRight returns the right to read the resources of a group and version.
func discoveryRight(group, version string) authz.Right {
	if group == "" {
		return authz.Right{Verb: "get", Path: "/api/" + version}
	}
	return authz.Right{Verb: "get", Path: "/apis/" + group + "/" + version}
}

// IdentityRight returns the right that [Client.Identity] needs.
func IdentityRight() authz.Right {
	return authz.Right{Verb: "get", Resource: "namespaces", Name: "kube-system", Namespace: "kube-system"}
}

// OpenAPIRight returns the right that [Client.OpenAPI] needs for a group and version.
func OpenAPIRight(group, version string) authz.Right {
	return authz.Right{Verb: "get", Path: "/" + openAPIPath(group, version)}
}

// CannotWatch asks the API server whether it has watches of the resource of a Spec, and the
// fieldSelector. It returns the key of a source that is wrong, and why; empty: none is, or the API
// server gives no answer.
func (c *Client) CannotWatch(ctx context.Context, spec *Spec) (key, why string) {
	found, err := c.api.Discover(ctx, spec.Resource)
	if err != nil {
		return "", ""
	}
	if len(found.Verbs) > 0 && (!slices.Contains(found.Verbs, "list") || !slices.Contains(found.Verbs, "watch")) {
		return "resource", fmt.Sprintf("the API server cannot list and watch %s, its verbs are only %s: write another resource",
			client.ResourceName(spec.Resource), strings.Join(found.Verbs, ", "))
	}
	if spec.FieldSelector == "" {
		return "", ""
	}
	namespace := spec.Namespace
	if !found.Namespaced {
		namespace = ""
	}
	if err := c.api.AcceptsFields(ctx, spec.Resource, namespace, spec.FieldSelector); err != nil {
		return "fieldSelector", fmt.Sprintf("the API server does not have this selector for %s: %v; compare the field in the filter of a route instead",
			client.ResourceName(spec.Resource), err)
	}
	return "", ""
}

// Allowed asks the API server whether the client has a right. An error means that the API server
// gave no answer.
func (c *Client) Allowed(ctx context.Context, r authz.Right) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes = r.Attributes()
	err := c.api.Post(ctx, "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
	return review.Status.Allowed, err
}

// User returns the user name of the client at the API server.
func (c *Client) User(ctx context.Context) (string, error) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Status     struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authentication.k8s.io/v1", "SelfSubjectReview"
	err := c.api.Post(ctx, "apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
	return review.Status.UserInfo.Username, err
}
