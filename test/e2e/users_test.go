package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const usersConfig = `
sources:
  maps: {resource: v1/configmaps, namespaces: NS, indexes: {byValue: object.data.value}}
  hidden: {resource: v1/secrets, namespaces: NS}
sinks: {out: {webhook: {url: "URL"}}}
routes:
  - {name: both, from: [maps, hidden], existing: deliver, to: out, retry: {attempts: 0}}
  - {name: maps, from: maps, to: out, filter: 'list("hidden").size() == 0'}
`

// The rights of the users: ann may see the ConfigMaps of the namespace and all paths, carol the
// ConfigMaps alone, and root everything.
const usersRoles = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: ann, namespace: NS}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: bob, namespace: NS}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS}
rules: [{nonResourceURLs: [/deltarouter/v1/*, /metrics], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS}
subjects: [{kind: ServiceAccount, name: ann, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: maps, namespace: NS}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: maps, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: maps}
subjects:
  - {kind: ServiceAccount, name: ann, namespace: NS}
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: carol}
`

// guardedAPI is the API of a router that asks the cluster about its users.
type guardedAPI struct {
	*routertest.Router

	ca    *testCA
	dir   string // of the TLS files
	url   string
	proxy *sandboxtest.Proxy // between the router and its API server
}

func startGuardedAPI(t *testing.T, s *sandboxtest.Sandbox, ns string) *guardedAPI {
	t.Helper()
	g := &guardedAPI{ca: newTestCA(t), dir: t.TempDir(), proxy: s.Proxy(t)}
	g.ca.write(t, filepath.Join(g.dir, "one"), "one")
	must.Succeed(t, os.Symlink("one", filepath.Join(g.dir, "data")))
	refuses := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refuses.Close)
	file := routertest.Install(t, g.proxy.Kubeconfig(), strings.NewReplacer("NS", ns, "URL", refuses.URL).Replace(usersConfig))
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	listen := strings.ReplaceAll(`listen: {api: "127.0.0.1:0", access: kubernetes, tls: {cert: {file: DIR/tls.crt}, key: {file: DIR/tls.key}, clientCA: {file: DIR/ca.crt}}, `,
		"DIR", filepath.Join(g.dir, "data"))
	must.Succeed(t, os.WriteFile(file, []byte(strings.Replace(string(text), "listen: {", listen, 1)), 0o600))
	g.Router = routertest.StartFile(t, file)
	g.Ready(t)
	address := regexp.MustCompile(`"for":"api","address":"(127.0.0.1:\d+)"`)
	g.WaitLog(t, "the address of the API", func(log string) bool {
		if found := address.FindStringSubmatch(log); found != nil {
			g.url = "https://" + found[1]
		}
		return g.url != ""
	})
	return g
}

// user is a user with a token or a client certificate.
type user struct {
	token string
	cert  *tls.Certificate
}

// open sends a request on a new connection. The caller closes the body.
func (g *guardedAPI) open(t *testing.T, u user, method, path string) *http.Response {
	t.Helper()
	settings := &tls.Config{RootCAs: g.ca.pool(), MinVersion: tls.VersionTLS12}
	if u.cert != nil {
		settings.Certificates = []tls.Certificate{*u.cert}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: settings, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(`{"route":"both"}`))
	must.Succeed(t, err)
	r.Header.Set("Content-Type", "application/json")
	if u.token != "" {
		r.Header.Set("Authorization", "Bearer "+u.token)
	}
	response, err := client.Do(r)
	must.Succeed(t, err)
	return response
}

func (g *guardedAPI) ask(t *testing.T, u user, method, path string) (status int, text string) {
	t.Helper()
	response := g.open(t, u, method, path)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(body)
}

// tokenOf returns a token of a ServiceAccount.
func tokenOf(t *testing.T, s *sandboxtest.Sandbox, ns, name string) user {
	t.Helper()
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": name},
	}}
	accounts := s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(ns)
	answer, err := accounts.Create(t.Context(), request, metav1.CreateOptions{}, "token")
	must.Succeed(t, err)
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	return user{token: token}
}

// TestAccess shows on an API server what permitted and denied users get from each endpoint: with
// tokens and with client certificates, before and after the certificate of the router is renewed,
// while the API server cannot be reached, and after a right is withdrawn. Users without a
// right to Secrets learn nothing about them.
func TestAccess(t *testing.T) {
	// Guarantee: api-access, certificate-renewal
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, "", strings.ReplaceAll(usersRoles, "NS", ns))
	t.Cleanup(func() {
		for _, resource := range []string{"clusterroles", "clusterrolebindings"} {
			gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
			must.Report(t, s.Dynamic().Resource(gvr).Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}))
		}
	})
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("m0", "0"))
	s.Apply(t, ns, "{apiVersion: v1, kind: Secret, metadata: {name: s3cret}}")
	g := startGuardedAPI(t, s, ns)
	ann, bob := tokenOf(t, s, ns, "ann"), tokenOf(t, s, ns, "bob")
	carol := user{cert: g.ca.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "carol"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})}
	routertest.Poll(t, "the roles to be known", func() bool {
		status, _ := g.ask(t, carol, http.MethodGet, "/api/v1/sources/maps?namespace="+ns)
		return status == http.StatusOK
	})
	routertest.Poll(t, "the dead letters, of which ann sees one", func() bool {
		_, text := g.ask(t, ann, http.MethodGet, "/api/v1/deadletters")
		return strings.Count(text, `"id":`) == 1
	})
	for _, c := range []struct {
		who          user
		method, path string
		status       int
		want         string
	}{
		{user{}, "GET", "/healthz", 200, "ok"},
		{user{}, "GET", "/readyz", 200, "ready"},
		{user{}, "GET", "/metrics", 401, ""},
		{user{}, "GET", "/api/v1/status", 401, "needs a token"},
		{user{token: "x"}, "GET", "/api/v1/status", 401, "not accepted"},
		{bob, "GET", "/metrics", 403, ""},
		{bob, "GET", "/api/v1/status", 403, "may not get /deltarouter/v1/status"},
		{bob, "GET", "/api/v1/sources/maps", 403, `may not list these objects of source \"maps\"`},
		{bob, "GET", "/api/v1/sources/none", 403, `may not list these objects of source \"none\"`},
		{bob, "POST", "/api/v1/state/backup", 403, "may not create /deltarouter/v1/state/backup"},
		{carol, "GET", "/api/v1/sources/maps", 200, `"m0"`},
		{carol, "GET", "/api/v1/sources/hidden", 403, `may not list these objects of source \"hidden\"`},
		{carol, "GET", "/api/v1/status", 403, ""},
		{ann, "GET", "/metrics", 200, "deltarouter_"},
		{ann, "GET", "/api/v1/status", 200, `"checks"`},
		{ann, "GET", "/api/v1/sources", 200, `"hidden":true`},
		{ann, "GET", "/api/v1/sources/maps/indexes/byValue?value=0", 200, `"m0"`},
		{ann, "GET", "/api/v1/sources/maps?filter=" + url.QueryEscape(`get("hidden", "`+ns+`", "s3cret") != null`), 403, "may not list secrets"},
		{ann, "GET", "/api/v1/sources/maps?watch=true&filter=" + url.QueryEscape(`list("hidden").size() > 0`), 403, "may not list secrets"},
		{ann, "GET", "/api/v1/sources/hidden", 403, "may not list secrets"},
		{ann, "GET", "/api/v1/sources/hidden?name=s3cret&namespace=" + ns, 403, "may not get secrets"},
		{ann, "GET", "/api/v1/sources/hidden/indexes/name?value=s3cret", 403, "may not list secrets"},
		{ann, "GET", "/api/v1/sources/hidden?watch=true", 403, "may not watch secrets"},
		{ann, "GET", "/api/v1/tap", 403, "may not watch secrets"},
		// The filter of the route reads Secrets.
		{ann, "GET", "/api/v1/tap?route=maps", 403, "may not watch secrets"},
		{ann, "GET", "/api/v1/routes/both/active", 403, "may not list secrets"},
		{ann, "POST", "/api/v1/resync", 403, "may not list secrets"},
		{ann, "POST", "/api/v1/deadletters/drop", 200, `{"done":1}`},
		{ann, "GET", "/api/v1/deadletters", 200, `{"letters":[]}`},
	} {
		status, text := g.ask(t, c.who, c.method, c.path)
		if status != c.status || !strings.Contains(text, c.want) || strings.Contains(text, "s3cret") && !strings.Contains(c.path, "name=s3cret") {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, status, text, c.status, c.want)
		}
	}
	if code, _ := g.Get(t, "/metrics"); code != http.StatusNotFound {
		t.Errorf("the probes have metrics for all: %d", code)
	}
	g.renewed(t, carol)
	g.cutOff(t, ann)
	g.withdrawn(t, s, ns, ann)
}

// renewed replaces the certificate of the router.
func (g *guardedAPI) renewed(t *testing.T, u user) {
	t.Helper()
	g.ca.write(t, filepath.Join(g.dir, "two"), "two")
	must.Succeed(t, os.Symlink("two", filepath.Join(g.dir, "next")))
	must.Succeed(t, os.Rename(filepath.Join(g.dir, "next"), filepath.Join(g.dir, "data")))
	response := g.open(t, u, http.MethodGet, "/healthz")
	defer response.Body.Close()
	if name := response.TLS.PeerCertificates[0].Subject.CommonName; name != "two" {
		t.Errorf("a new connection gets certificate %s", name)
	}
}

// cutOff asks for a right that is not known yet while the API server cannot be reached.
func (g *guardedAPI) cutOff(t *testing.T, u user) {
	t.Helper()
	g.proxy.Refuse()
	if status, text := g.ask(t, u, http.MethodGet, "/api/v1/deadletters/7"); status != http.StatusServiceUnavailable || !strings.Contains(text, "the API server does not say who may do this") {
		t.Errorf("without an API server: %d %s", status, text)
	}
	g.proxy.Unblock()
	routertest.Poll(t, "answers of the API server", func() bool {
		status, _ := g.ask(t, u, http.MethodGet, "/api/v1/deadletters/7")
		return status == http.StatusNotFound
	})
}

// withdrawn follows a stream until the right to it is withdrawn.
func (g *guardedAPI) withdrawn(t *testing.T, s *sandboxtest.Sandbox, ns string, u user) {
	t.Helper()
	stream := g.open(t, u, http.MethodGet, "/api/v1/sources/maps?watch=true&namespace="+ns)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	last := ""
	for lines.Scan() {
		if last = lines.Text(); strings.Contains(last, `"LISTED"`) {
			must.Succeed(t, s.Dynamic().Resource(bindings).Namespace(ns).Delete(t.Context(), "maps", metav1.DeleteOptions{}))
		}
	}
	if want := fmt.Sprintf(`may not watch configmaps in namespace \"%s\"`, ns); !strings.Contains(last, `"ERROR"`) || !strings.Contains(last, want) {
		t.Errorf("the stream ended with %s, %v", last, lines.Err())
	}
}

// testCA signs certificates of servers and clients.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	ca := &testCA{key: key, cert: &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	ca.cert, err = x509.ParseCertificate(ca.sign(t, ca.cert).Certificate[0])
	must.Succeed(t, err)
	return ca
}

// sign returns a certificate with the key of the authority.
func (c *testCA) sign(t *testing.T, leaf *x509.Certificate) *tls.Certificate {
	t.Helper()
	leaf.SerialNumber, leaf.NotBefore, leaf.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	text, err := x509.CreateCertificate(rand.Reader, leaf, c.cert, &c.key.PublicKey, c.key)
	must.Succeed(t, err)
	return &tls.Certificate{Certificate: [][]byte{text}, PrivateKey: c.key}
}

func (c *testCA) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// write makes the files of a server certificate in a new folder.
func (c *testCA) write(t *testing.T, dir, name string) {
	t.Helper()
	must.Succeed(t, os.Mkdir(dir, 0o700))
	leaf := c.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	must.Succeed(t, err)
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}, "ca.crt": {Type: "CERTIFICATE", Bytes: c.cert.Raw},
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
}
