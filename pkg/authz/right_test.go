package authz_test

import (
	"encoding/json"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestRight shows the description of a right, and the question for it at the API server.
func TestRight(t *testing.T) {
	for _, c := range []struct {
		right      authz.Right
		text, asks string
	}{
		{authz.Right{Verb: "get", Path: "/apis/apps/v1"}, "get /apis/apps/v1", `{"nonResourceAttributes":{"path":"/apis/apps/v1","verb":"get"}}`},
		{
			authz.Right{Verb: "list", Resource: "secrets", Namespace: "ops"},
			`list secrets in namespace "ops"`,
			`{"resourceAttributes":{"namespace":"ops","verb":"list","resource":"secrets"}}`,
		},
		{
			authz.Right{Verb: "patch", Group: "apps", Resource: "deployments/scale", Name: "web"},
			`patch deployments.apps/scale "web" in all namespaces`,
			`{"resourceAttributes":{"verb":"patch","group":"apps","resource":"deployments","subresource":"scale","name":"web"}}`,
		},
		{authz.Right{Verb: "get", Resource: "namespaces"}, "get namespaces", `{"resourceAttributes":{"verb":"get","resource":"namespaces"}}`},
		{
			authz.Right{Verb: "get", Resource: "namespaces", Name: "ops", Namespace: "ops"},
			`get namespaces "ops" in namespace "ops"`,
			`{"resourceAttributes":{"namespace":"ops","verb":"get","resource":"namespaces","name":"ops"}}`,
		},
	} {
		var spec authorizationv1.SelfSubjectAccessReviewSpec
		spec.ResourceAttributes, spec.NonResourceAttributes = c.right.Attributes()
		asks, err := json.Marshal(spec)
		must.Succeed(t, err)
		if text := c.right.String(); text != c.text || string(asks) != c.asks {
			t.Errorf("got %s: %s", text, asks)
		}
	}
}
