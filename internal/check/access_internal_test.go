package check

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// accessTo checks the rights for two sources against a server with this handler.
func accessTo(t *testing.T, answer http.HandlerFunc) (*access, string) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := informer.NewClientFor(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	t.Cleanup(client.Close)
	cfg, problems := config.Parse("config.yaml", []byte(`version: 1
sources:
  pods: {resource: v1/pods, namespaces: [b, a], labelSelector: app=web}
  nodes: {resource: v1/nodes}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: [pods, nodes], to: out}]
`), config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p := &compile.Plan{Config: cfg, Sources: make(map[string]compile.Source)}
	for name, source := range cfg.Sources {
		specs, err := informer.SpecsOf(source)
		must.Succeed(t, err)
		p.Sources[name] = compile.Source{Specs: specs}
	}
	a := checkAccess(t.Context(), client, p, compile.Components{})
	return a, a.roles(t.Context(), "config.yaml")
}

// TestRoles shows that each right is asked for once, and that the manifests grant the missing ones
// to the router's user.
func TestRoles(t *testing.T) {
	asked := make(map[string]int)
	a, roles := accessTo(t, func(w http.ResponseWriter, r *http.Request) {
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
metadata: {name: NAME}
rules:
  - {apiGroups: [""], resources: ["nodes"], verbs: [list, watch]}
  - {nonResourceURLs: ["/api/v1"], verbs: [get]}
  - {nonResourceURLs: ["/openapi/v3/api/v1"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects:
  - {kind: ServiceAccount, name: "router", namespace: "ops"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NAME, namespace: "a"}
rules:
  - {apiGroups: [""], resources: ["pods"], verbs: [get, list, watch]}
`
	got := roles
	for line := range strings.Lines(roles) {
		if _, rest, ok := strings.Cut(line, "name: deltarouter-"); ok {
			got = strings.ReplaceAll(got, "deltarouter-"+rest[:8], "NAME")
		}
	}
	if !strings.HasPrefix(got, want) || strings.Count(got, "kind: RoleBinding") != 3 || !strings.Contains(got, `resourceNames: ["kube-system"]`) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(a.problems) != 2 || !strings.Contains(a.problems.Error(), `sources.pods.resource: the router may not list and watch pods, nor get /api/v1 in a, b; the rules`) {
		t.Error(a.problems)
	}
	// pods: get, list and watch in a and b; nodes: list and watch; two paths; the identity. Each
	// once.
	if n := asked["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]; n != 11 {
		t.Errorf("asked %d times", n)
	}
}

// TestAccessUnknown shows that an API server that does not answer, at once or after some questions,
// is no problem of the configuration.
func TestAccessUnknown(t *testing.T) {
	for _, answers := range []int{0, 5} {
		asked := 0
		a, roles := accessTo(t, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked > answers {
				http.Error(w, "no", http.StatusNotFound)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"status":{"allowed":false}}`)
		})
		if len(a.problems) != 0 || roles != "" || len(a.warnings) != 1 || !strings.Contains(a.warnings.Error(), "were not checked, because") {
			t.Error(answers, a.problems, a.warnings, roles)
		}
	}
}
