package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UnservedError says that the API server does not serve a resource in the watched version. Its
// objects may still exist.
type UnservedError struct {
	Resource schema.GroupVersionResource
	Other    string // a version in which it is served; empty: in none
}

// Error describes the problem and its remedy.
func (e *UnservedError) Error() string {
	if e.Other == "" {
		return "its CustomResourceDefinition exists, and serves no version of it"
	}
	return fmt.Sprintf("version %s is not served any more, %s is: write resource: %s", e.Resource.Version, e.Other,
		ResourceName(e.Resource.GroupResource().WithVersion(e.Other)))
}

// Remains checks whether a resource that discovery does not have in its version exists
// nevertheless: it then returns an *UnservedError. nil: the resource does not exist. Any other
// error is temporary.
func (c *Client) Remains(ctx context.Context, gvr schema.GroupVersionResource) error {
	if gvr.Group == "" {
		return nil // every API server has v1 and no other version
	}
	var groups metav1.APIGroupList
	if err := c.GetJSON(ctx, "apis", &groups); err != nil {
		return err
	}
	definitions := false
	for i := range groups.Groups {
		definitions = definitions || groups.Groups[i].Name == "apiextensions.k8s.io"
		if groups.Groups[i].Name != gvr.Group {
			continue
		}
		// In another version the same objects are served.
		for _, version := range groups.Groups[i].Versions {
			if version.Version == gvr.Version {
				continue
			}
			other := gvr.GroupResource().WithVersion(version.Version)
			if _, err := c.Discover(ctx, other); err == nil {
				return &UnservedError{gvr, other.Version}
			} else if !errors.Is(err, ErrAbsent) {
				return err
			}
		}
	}
	if !definitions {
		return nil
	}
	return c.defined(ctx, gvr)
}

// defined is Remains for a resource that is served in no version. It returns nil if the client may
// not read the definition, because there is no other evidence.
func (c *Client) defined(ctx context.Context, gvr schema.GroupVersionResource) error {
	name := gvr.Resource + "." + gvr.Group
	resp, err := c.Get(ctx, "apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+url.PathEscape(name), nil, AcceptMetadata, IdleTimeout)
	if err == nil {
		_ = resp.Body.Close()
		return &UnservedError{Resource: gvr}
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && Names(err, name) {
		return nil
	}
	return err
}

// Names reports whether the API server itself says that an object of that name does not exist.
func Names(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name
}
