package remote_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/internal/remote"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestRedirect: neither the answer of an API server nor that of a router leads the user's token to
// another host.
func TestRedirect(t *testing.T) {
	// Guarantee: redirect-leaks
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s got a request, with Authorization %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	user := clientcmdapi.AuthInfo{Token: "of-the-user"}
	leads := http.RedirectHandler(elsewhere.URL+"/login", http.StatusFound)

	cluster := newCluster(t)
	cluster.Config.Handler = leads
	_, err := open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, user)})
	must.Fail(t, err, "a redirect to "+elsewhere.URL+"/login, which is not followed")

	r := newRouter(t, "of-the-user", true)
	r.Config.Handler = leads
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(ca, pemOf(r.Certificate().Raw), 0o600))
	client, err := open(t, remote.Options{Addr: r.URL, CA: ca, Kubeconfig: newCluster(t).kubeconfig(t, user)})
	must.Succeed(t, err)
	_, err = client.Status(t.Context())
	must.Fail(t, err, "redirects to "+elsewhere.URL+", which is not followed")
}
