package check

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// accessTo checks the rights for three sources against a server with this handler.
func accessTo(t *testing.T, answer http.HandlerFunc) Findings {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := informer.NewClientFor(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	t.Cleanup(client.Close)
	cfg, problems := config.Parse("config.yaml", []byte(`version: 1
cluster: {events: true}
sources:
  pods: {resource: v1/pods, namespaces: [b, a], labelSelector: app=web}
  nodes: {resource: v1/nodes}
  widgets: {resource: example.com/v1/widgets, namespaces: a, fieldSelector: metadata.name=one}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: [pods, nodes, widgets], to: out}]
`), config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return Access(t.Context(), client, rbac.Of(cfg, compile.Components{}, "ops"), "config.yaml")
}

// TestRoles shows that each right is asked for once, and that the manifests grant the missing ones
// to the router's user.
func TestRoles(t *testing.T) {
	asked := make(map[string]int)
	found := accessTo(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		asked[r.URL.Path]++
		if strings.HasSuffix(r.URL.Path, "selfsubjectreviews") {
			fmt.Fprint(w, `{"status":{"userInfo":{"username":"system:serviceaccount:ops:router"}}}`)
			return
		}
		fmt.Fprint(w, `{"status":{"allowed":false}}`)
	})
	const want = `# The rights that system:serviceaccount:ops:router lacks to run config.yaml, for review and kubectl apply by an administrator.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: NAME
rules:
- apiGroups:
  - ""
  resourceNames:
  - kube-system
  resources:
  - namespaces
  verbs:
  - get
`
	got := found.Roles
	for line := range strings.Lines(found.Roles) {
		if _, rest, ok := strings.Cut(line, "name: deltarouter-"); ok {
			got = strings.ReplaceAll(got, "deltarouter-"+rest[:8], "NAME")
		}
	}
	if !strings.HasPrefix(got, want) || strings.Count(got, "kind: RoleBinding") != 3 || strings.Count(got, "  name: router\n  namespace: ops\n") != 4 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := found.Problems.Error(); len(found.Problems) != 6 ||
		!strings.Contains(err, `sources.pods.resource: the router may not list and watch pods in a, b; the rules`) ||
		!strings.Contains(err, `sources.pods.resource: the router may not get /api/v1; the rules`) ||
		!strings.Contains(err, `sources.widgets.resource: the router may not list and watch widgets.example.com one; the rules`) {
		t.Error(found.Problems)
	}
	if err := found.Warnings.Error(); len(found.Warnings) != 7 ||
		!strings.Contains(err, `config.yaml: warning: cluster: the router may not create events in ops, so its pod has no Events; the rules below allow it`) {
		t.Error(found.Warnings)
	}
	// pods: get, list and watch in a and b; nodes: list and watch; widgets: list, watch and the
	// definition; four paths; the identity; Events. Each once.
	if n := asked["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]; n != 17 {
		t.Errorf("asked %d times", n)
	}
}

// TestAccessUnknown shows that an API server that does not answer, at once or after some questions,
// is no problem of the configuration.
func TestAccessUnknown(t *testing.T) {
	for _, answers := range []int{0, 5} {
		asked := 0
		found := accessTo(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked > answers {
				http.Error(w, "no", http.StatusNotFound)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"status":{"allowed":false}}`)
		})
		if len(found.Problems) != 0 || found.Roles != "" || len(found.Warnings) != 1 || !strings.Contains(found.Warnings.Error(), "were not checked, because") {
			t.Error(answers, found)
		}
	}
}
