package informer

import (
	"context"
	"strings"
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
		return Right{Verb: verb, Group: s.Resource.Group, Resource: s.Resource.Resource, Namespace: s.Namespace}
	}
	path := "/apis/" + s.Resource.Group + "/" + s.Resource.Version
	if s.Resource.Group == "" {
		path = "/api/" + s.Resource.Version
	}
	needed = []Right{right("list"), right("watch"), {Verb: "get", Path: path}}
	if s.Selective() {
		optional = []Right{right("get")} // see Watch.exists
	}
	return needed, optional
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
