package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestRightsBesideVerb shows for writes of which the API server requires more than the verb that
// check -connect names the right, that no role of router rbac grants it, and that the commented
// roles do: with them, the router makes the write.
func TestRightsBesideVerb(t *testing.T) {
	// Guarantee: rbac-exact
	t.Parallel()
	s := sandboxtest.Start(t)
	const rbacGroup, rbacV1 = "rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"
	for _, c := range []struct {
		rbacCase

		says string
	}{
		{
			says: "may not escalate roles." + rbacGroup + " in NS",
			rbacCase: rbacCase{name: "escalate", config: writing("[{resource: "+rbacV1+"/roles, namespaces: NS, verbs: apply}]",
				`{"apply": {"apiVersion": "`+rbacV1+`", "kind": "Role", "metadata": {"name": "made", "namespace": "NS"}, `+
					`"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]}]}}`)},
		},
		{
			says: "may not bind clusterroles." + rbacGroup + " in NS",
			rbacCase: rbacCase{name: "bind", config: writing("[{resource: "+rbacV1+"/rolebindings, namespaces: NS, verbs: create}]",
				`{"create": {"apiVersion": "`+rbacV1+`", "kind": "RoleBinding", "metadata": {"name": "made", "namespace": "NS"}, `+
					`"roleRef": {"apiGroup": "`+rbacGroup+`", "kind": "ClusterRole", "name": "system:aggregate-to-edit"}, "subjects": []}}`)},
		},
		{
			says: "may not bind clusterroles." + rbacGroup + ",",
			rbacCase: rbacCase{name: "bind everywhere", config: writing("[{resource: "+rbacV1+"/clusterrolebindings, verbs: apply}]",
				`{"apply": {"apiVersion": "`+rbacV1+`", "kind": "ClusterRoleBinding", "metadata": {"name": "NS"}, `+
					`"roleRef": {"apiGroup": "`+rbacGroup+`", "kind": "ClusterRole", "name": "system:aggregate-to-edit"}, "subjects": []}}`)},
		},
		{
			says: "may not sign signers.certificates.k8s.io,",
			rbacCase: rbacCase{
				name: "sign", before: signingRequest(t),
				config: writing("[{resource: certificates.k8s.io/v1/certificatesigningrequests, subresources: status, verbs: merge}]",
					`{"target": {"resource": "certificates.k8s.io/v1/certificatesigningrequests", "name": "work"}, "subresource": "status", `+
						`"merge": {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "Tried", "message": "m"}]}}}`),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.writes = 1
			g := newGranted(t, s, c.rbacCase)
			client, err := informer.NewClient(config.Cluster{Kubeconfig: kubeconfigOf(t, g.file)}, config.Policy{})
			must.Succeed(t, err)
			defer client.Close()
			says := strings.ReplaceAll(c.says, "NS", g.ns)
			routertest.Poll(t, "only the right beside the verb to be missing", func() bool {
				found := g.lacks(t, client)
				return len(found.Problems) == 1 && found.Roles == "" && strings.Contains(found.Problems.Error(), says)
			})
			_, commented, _ := strings.Cut(g.printed, "\n#\n")
			g.s.Apply(t, "", strings.TrimPrefix(strings.ReplaceAll("\n"+commented, "\n# ", "\n"), "\n"))
			g.runsWithout403(t)
		})
	}
}

// signingRequest returns the manifest of a CertificateSigningRequest. Its random data are without
// NS, which the harness replaces by the name of the namespace.
func signingRequest(t *testing.T) string {
	t.Helper()
	var request string
	for request == "" || strings.Contains(request, "NS") {
		request = base64.StdEncoding.EncodeToString(randomRequest(t))
	}
	return "{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: work}, " +
		"spec: {signerName: example.com/work, usages: [digital signature], request: " + request + "}}\n"
}

// randomRequest returns a PEM-encoded request of a new key.
func randomRequest(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "work"}}, key)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
