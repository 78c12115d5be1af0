package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// found is what discovery says about a resource.
type found struct {
	kind       string
	namespaced bool
}

// errAbsent says that the API server does not have a resource. It is the only error of discover that proves anything.
var errAbsent = errors.New("does not exist (yet)")

// discover asks the API server about a resource. The error is errAbsent only if the API server itself says so: a missing page may
// also be the doing of a proxy, or of an API server that is starting, so the group's absence is confirmed by the list of groups.
func (c *Client) discover(ctx context.Context, gvr schema.GroupVersionResource) (found, error) {
	path := "apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "api/" + gvr.Version
	}
	var list metav1.APIResourceList
	err := c.getJSON(ctx, path, &list)
	if apierrors.IsNotFound(err) {
		return found{}, c.confirmNoVersion(ctx, gvr.GroupVersion(), err)
	}
	if err != nil {
		return found{}, err
	}
	if list.Kind != "APIResourceList" {
		return found{}, fmt.Errorf("discover %s: not a list of resources", path)
	}
	for _, r := range list.APIResources {
		if r.Name == gvr.Resource {
			return found{kind: r.Kind, namespaced: r.Namespaced}, nil
		}
	}
	return found{}, errAbsent
}

// confirmNoVersion returns errAbsent if the API server lists its groups and gv is not among them.
func (c *Client) confirmNoVersion(ctx context.Context, gv schema.GroupVersion, missing error) error {
	if gv.Group == "" {
		return missing // every API server has v1; other versions of the core group never existed
	}
	var groups metav1.APIGroupList
	if err := c.getJSON(ctx, "apis", &groups); err != nil {
		return err
	}
	if groups.Kind != "APIGroupList" {
		return errors.New("discover apis: not a list of groups")
	}
	for i := range groups.Groups {
		for _, version := range groups.Groups[i].Versions {
			if version.GroupVersion == gv.String() {
				return missing
			}
		}
	}
	return errAbsent
}

func (c *Client) getJSON(ctx context.Context, path string, into any) error {
	resp, err := c.get(ctx, path, nil, "application/json", idleTimeout)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, MaxObject)).Decode(into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// maxOpenAPI is how many bytes an OpenAPI document may have. That of v1 has 1.6 MB; a custom resource's may be as large as its schema.
const maxOpenAPI = 64 << 20

// OpenAPI returns the OpenAPI v3 document of a group and version, as the API server has it; group "" is the core group. Of a version
// that it does not have, it returns nil.
func (c *Client) OpenAPI(ctx context.Context, group, version string) ([]byte, error) {
	path := openAPIPath(group, version)
	resp, err := c.get(ctx, path, nil, "application/json", idleTimeout)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxOpenAPI+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxOpenAPI {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, maxOpenAPI)
	}
	return text, nil
}

func openAPIPath(group, version string) string {
	if group == "" {
		return "openapi/v3/api/" + version
	}
	return "openapi/v3/apis/" + group + "/" + version
}

// OpenAPIVersions returns the groups and versions that the API server has an OpenAPI v3 document of, sorted.
func (c *Client) OpenAPIVersions(ctx context.Context) ([]schema.GroupVersion, error) {
	var root struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := c.getJSON(ctx, "openapi/v3", &root); err != nil {
		return nil, err
	}
	var all []schema.GroupVersion
	for _, path := range slices.Sorted(maps.Keys(root.Paths)) {
		switch parts := strings.Split(path, "/"); {
		case len(parts) == 2 && parts[0] == "api":
			all = append(all, schema.GroupVersion{Version: parts[1]})
		case len(parts) == 3 && parts[0] == "apis":
			all = append(all, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the API server lists no OpenAPI v3 documents")
	}
	return all, nil
}

// resourcePath returns where the objects of a resource are, all or those of a namespace.
func resourcePath(gvr schema.GroupVersionResource, namespace string) string {
	path := "apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "api/" + gvr.Version
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + gvr.Resource
}
