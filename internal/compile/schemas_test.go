package compile_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestUnanswered shows the messages about API servers that do not answer, or refuse.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	serve := func(code int) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return s
	}
	gone := serve(http.StatusOK)
	gone.Close()
	plain := serve(http.StatusOK)
	for name, test := range map[string]struct{ server, want string }{
		"dead":     {gone.URL, " cannot be reached: connection refused; check the address, and cluster.kubeconfig and cluster.context"},
		"no TLS":   {"https" + plain.URL[len("http"):], " cannot be reached: the server speaks HTTP and not HTTPS; check the address, and cluster.kubeconfig and cluster.context"},
		"expired":  {serve(http.StatusUnauthorized).URL, " refuses the credentials (401): renew the token or the certificate of the kubeconfig"},
		"starting": {serve(http.StatusServiceUnavailable).URL, " answers: 503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			must.Succeed(t, os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "`+test.server+`"}}]
users: [{name: u, user: {token: abc}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`), 0o600))
			cluster, want := config.Cluster{Kubeconfig: file}, "the API server "+test.server+test.want
			client, err := informer.NewClient(cluster, config.Policy{})
			must.Succeed(t, err)
			defer client.Close()
			ask, done := compile.AskCluster(t.Context(), client)
			defer done()
			if _, err = ask("", "v1"); err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s", err, want)
			}
			want = "the schemas of the cluster cannot be read: " + want
			if _, _, err = compile.PullSchemas(t.Context(), cluster, config.Policy{}, t.TempDir()); err == nil || err.Error() != want {
				t.Errorf("a pull: got %v\nwant %s", err, want)
			}
		})
	}
}
