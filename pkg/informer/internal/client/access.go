package client

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MayList reports whether the API server says that the client may list a resource in all
// namespaces.
func (c *Client) MayList(ctx context.Context, of schema.GroupResource) bool {
	review := authorizationv1.SelfSubjectAccessReview{}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: "list", Group: of.Group, Version: "*", Resource: of.Resource}
	err := c.Post(ctx, "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
	return err == nil && review.Status.Allowed
}
