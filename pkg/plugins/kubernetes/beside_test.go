package kubernetes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// TestRightsBeside shows the rights that writes require beside their verb.
func TestRightsBeside(t *testing.T) {
	for _, c := range []struct {
		grant string
		want  []string
	}{
		{"{resource: rbac.authorization.k8s.io/v1/roles, namespaces: [a], verbs: [merge]}", []string{`escalate roles.rbac.authorization.k8s.io in namespace "a"`}},
		{"{resource: rbac.authorization.k8s.io/v1/clusterroles, verbs: [json]}", []string{"escalate clusterroles.rbac.authorization.k8s.io in all namespaces"}},
		{"{resource: rbac.authorization.k8s.io/v1/rolebindings, namespaces: [a, b], verbs: [create]}", []string{
			`optional bind roles.rbac.authorization.k8s.io in namespace "a"`, `bind clusterroles.rbac.authorization.k8s.io in namespace "a"`,
			`optional bind roles.rbac.authorization.k8s.io in namespace "b"`, `bind clusterroles.rbac.authorization.k8s.io in namespace "b"`,
		}},
		{"{resource: rbac.authorization.k8s.io/v1/rolebindings, namespaceSelector: a=b, verbs: [apply]}", []string{
			"optional selected bind roles.rbac.authorization.k8s.io in all namespaces", "selected bind clusterroles.rbac.authorization.k8s.io in all namespaces",
		}},
		{"{resource: rbac.authorization.k8s.io/v1/clusterrolebindings, verbs: [apply]}", []string{"bind clusterroles.rbac.authorization.k8s.io in all namespaces"}},
		{"{resource: rbac.authorization.k8s.io/v1/rolebindings, verbs: [delete, event]}", nil},
		{"{resource: certificates.k8s.io/v1/certificatesigningrequests, subresources: [status], verbs: [merge]}", []string{"sign signers.certificates.k8s.io in all namespaces"}},
		{"{resource: certificates.k8s.io/v1/certificatesigningrequests, verbs: [create]}", nil},
		{"{resource: certificates.k8s.io/v1beta1/clustertrustbundles, verbs: [apply]}", []string{"attest signers.certificates.k8s.io in all namespaces"}},
		{"{resource: admissionregistration.k8s.io/v1/validatingadmissionpolicies, verbs: [apply]}", []string{"optional get *.* in all namespaces"}},
		{"{resource: admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings, verbs: [apply]}", []string{
			"optional get *.* in all namespaces", "optional list *.* in all namespaces",
		}},
		{"{resource: resource.k8s.io/v1/resourceclaims, namespaces: [a], subresources: [status], verbs: [json]}", []string{
			"optional patch resourceclaims.resource.k8s.io/binding in all namespaces", `optional arbitrary-node:patch resourceclaims.resource.k8s.io/driver in namespace "a"`,
		}},
		{"{resource: apps/v1/deployments, verbs: [apply, create, merge, json, delete, event]}", nil},
	} {
		requester, _ := kubernetes.Kind().(plugins.RightsRequester)
		var got []string
		for _, r := range requester.Rights(plugintest.Node(t, "allow: ["+c.grant+"]")) {
			if r.When == "" {
				continue
			}
			text := r.Right.String()
			if r.Selected {
				text = "selected " + text
			}
			if r.Optional {
				text = "optional " + text
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.grant, fmt.Sprintf("%q", got), fmt.Sprintf("%q", c.want))
		}
	}
}
