package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Found is the answer of discovery about a resource.
type Found struct {
	Kind       string
	Namespaced bool
	Verbs      []string // empty: unknown
}

// ErrAbsent says that the API server does not have a resource. Other errors of Discover do not
// prove that.
var ErrAbsent = errors.New("does not exist (yet)")

// Discover requests the discovery data of a resource. It returns ErrAbsent only if the API server
// itself says so: a missing page may also come from a proxy, or from an API server that is
// starting, so the list of groups has to confirm that the group is absent.
func (c *Client) Discover(ctx context.Context, gvr schema.GroupVersionResource) (Found, error) {
	return discover(ctx, gvr, c.GetJSON)
}

// getter decodes the answer for a path.
type getter func(ctx context.Context, path string, into any) error

func discover(ctx context.Context, gvr schema.GroupVersionResource, get getter) (Found, error) {
	path := "apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "api/" + gvr.Version
	}
	var list metav1.APIResourceList
	err := get(ctx, path, &list)
	if apierrors.IsNotFound(err) {
		return Found{}, confirmNoVersion(ctx, gvr.GroupVersion(), err, get)
	}
	if err != nil {
		return Found{}, err
	}
	if list.Kind != "APIResourceList" {
		return Found{}, fmt.Errorf("discover %s: not a list of resources", path)
	}
	for _, r := range list.APIResources {
		if r.Name == gvr.Resource {
			return Found{Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs}, nil
		}
	}
	return Found{}, ErrAbsent
}

// confirmNoVersion returns ErrAbsent if the list of groups of the API server does not have gv, and
// missing if it has.
func confirmNoVersion(ctx context.Context, gv schema.GroupVersion, missing error, get getter) error {
	if gv.Group == "" {
		return missing // every API server has v1; other versions of the core group never existed
	}
	var groups metav1.APIGroupList
	if err := get(ctx, "apis", &groups); err != nil {
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
	return ErrAbsent
}

// AnyNamespace reports whether a namespace has the labels of a selector.
func (c *Client) AnyNamespace(ctx context.Context, selector string) (bool, error) {
	var list metav1.PartialObjectMetadataList
	err := c.getJSON(ctx, "api/v1/namespaces", url.Values{"labelSelector": {selector}, "limit": {"1"}}, &list)
	return len(list.Items) > 0, err
}

// noObject is a name that no object has.
const noObject = "deltarouter.no-object"

// AcceptsFields asks the API server whether it has a field selector for a resource. The request
// selects no object, so that it costs no search. The error is the API server's message; nil: it has
// the selector, or gives no answer.
func (c *Client) AcceptsFields(ctx context.Context, gvr schema.GroupVersionResource, namespace, selector string) error {
	var list metav1.PartialObjectMetadataList
	err := c.getJSON(ctx, ResourcePath(gvr, namespace), url.Values{"fieldSelector": {selector + ",metadata.name=" + noObject}, "limit": {"1"}}, &list)
	if apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
		return err
	}
	return nil
}

// GetJSON decodes the answer for a path.
func (c *Client) GetJSON(ctx context.Context, path string, into any) error {
	return c.getJSON(ctx, path, nil, into)
}

func (c *Client) getJSON(ctx context.Context, path string, query url.Values, into any) error {
	resp, err := c.Get(ctx, path, query, AcceptObjects, IdleTimeout)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// ResourcePath returns the URL path of the objects of a resource; namespace "" means all.
func ResourcePath(gvr schema.GroupVersionResource, namespace string) string {
	path := "apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		path = "api/" + gvr.Version
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + gvr.Resource
}

// ResourceName names a resource in messages, as apps/v1/deployments.
func ResourceName(gvr schema.GroupVersionResource) string {
	return (&event.Resource{GroupVersionResource: gvr}).String()
}
