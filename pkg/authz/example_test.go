package authz_test

import (
	"fmt"

	"github.com/deltarouter/deltarouter/pkg/authz"
)

// A right is a text for a message, and a question for a SelfSubjectAccessReview.
func ExampleRight() {
	evict := authz.Right{Verb: "create", Resource: "pods/eviction", Namespace: "shop"}
	on, _ := evict.Attributes()
	fmt.Println(evict)
	fmt.Println(on.Verb, on.Resource, on.Subresource, on.Namespace)

	discover := authz.Right{Verb: "get", Path: "/apis/apps/v1"}
	_, path := discover.Attributes()
	fmt.Println(discover)
	fmt.Println(path.Verb, path.Path)
	// Output:
	// create pods/eviction in namespace "shop"
	// create pods eviction shop
	// get /apis/apps/v1
	// get /apis/apps/v1
}
