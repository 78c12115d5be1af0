package informer

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
)

// Right is a permission at the API server.
type Right struct {
	Verb      string
	Group     string
	Resource  string // empty: see Path; with a subresource: pods/eviction
	Name      string // of the only object; empty: all objects
	Namespace string // empty: all, or the resource has none
	Path      string // a path instead of a resource, as /apis/apps/v1
}

// Rights returns the rights that the watch needs. Without the needed rights it does not work;
// without the optional ones it works at a higher cost.
func (s *Spec) Rights() (needed, optional []Right) {
	right := func(verb string) Right {
		return Right{Verb: verb, Group: s.Resource.Group, Resource: s.Resource.Resource, Name: s.onlyName(), Namespace: s.Namespace}
	}
	needed = []Right{right("list"), right("watch"), discoveryRight(s.Resource.Group, s.Resource.Version)}
	if s.Selective() {
		optional = []Right{right("get")} // see Inquiry.IsGone
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
func (s *Spec) DefinitionRight() (r Right, ok bool) {
	group := s.Resource.Group
	if !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
		return Right{}, false
	}
	name := s.Resource.Resource + "." + group
	return Right{Verb: "get", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: name}, true
}

// discoveryRight returns the right to read the resources of a group and version.
func discoveryRight(group, version string) Right {
	if group == "" {
		return Right{Verb: "get", Path: "/api/" + version}
	}
	return Right{Verb: "get", Path: "/apis/" + group + "/" + version}
}

// IdentityRight returns the right that [Client.Identity] needs.
func IdentityRight() Right {
	return Right{Verb: "get", Resource: "namespaces", Name: "kube-system", Namespace: "kube-system"}
}

// OpenAPIRight returns the right that [Client.OpenAPI] needs for a group and version.
func OpenAPIRight(group, version string) Right {
	return Right{Verb: "get", Path: "/" + openAPIPath(group, version)}
}

// Allowed asks the API server whether the client has a right. An error means that the API server
// gave no answer.
func (c *Client) Allowed(ctx context.Context, r Right) (bool, error) {
	type resource struct {
		Namespace string `json:"namespace,omitempty"`
		Verb      string `json:"verb"`
		Group     string `json:"group"`
		Resource  string `json:"resource"`
		Sub       string `json:"subresource,omitempty"`
		Name      string `json:"name,omitempty"`
	}
	type path struct {
		Path string `json:"path"`
		Verb string `json:"verb"`
	}
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Resource *resource `json:"resourceAttributes,omitempty"`
			Path     *path     `json:"nonResourceAttributes,omitempty"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	if r.Resource == "" {
		review.Spec.Path = &path{r.Path, r.Verb}
	} else {
		name, sub, _ := strings.Cut(r.Resource, "/")
		review.Spec.Resource = &resource{r.Namespace, r.Verb, r.Group, name, sub, r.Name}
	}
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
