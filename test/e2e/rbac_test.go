package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestGeneratedRights shows for each kind of source and each verb of a sink that the rights of
// router rbac suffice and that each rule is needed: a ServiceAccount gets the generated roles, and
// the router does its work with it without a request that is forbidden. Without any one of the
// rules, the check of the rights finds exactly this rule missing.
func TestGeneratedRights(t *testing.T) {
	// Guarantee: rbac-exact
	t.Parallel()
	s, _, _ := definedRoutes(t)
	s.Apply(t, "", gears)
	var mu sync.Mutex
	granted := make(map[string]rbac.Rules) // by user
	t.Run("cases", func(t *testing.T) {
		for _, c := range append(sourceCases(), sinkCases()...) {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				g := newGranted(t, s, c)
				g.runsWithout403(t)
				mu.Lock()
				granted[g.user] = g.rules
				mu.Unlock()
				g.needsEachRule(t)
			})
		}
	})
	var unused []string
	defer func() {
		if t.Failed() {
			t.Logf("no request needed these rights: %q", unused)
		}
	}()
	routertest.Poll(t, "the last requests in the audit log, which need all rights", func() bool {
		requests := make(map[string][]sandboxtest.Request)
		for _, q := range s.Requests(t, nil) {
			if granted[q.User] != nil && q.Code == http.StatusForbidden {
				t.Fatalf("%s may not %s %s", q.User, q.Verb, q.URI)
			}
			requests[q.User] = append(requests[q.User], q)
		}
		unused = nil
		for user, rules := range granted {
			for _, right := range unusedRights(rules, requests[user]) {
				unused = append(unused, user+": "+right)
			}
		}
		return len(unused) == 0
	})
}

// unusedRights returns the rights that no request needs. It leaves out those that are needed in
// rare cases only: to get an object, to list where a watch sends the initial objects, and to create
// one by apply. The audit log has no requests for paths.
func unusedRights(rules rbac.Rules, requests []sandboxtest.Request) (unused []string) {
	for namespace, list := range rules {
		for _, rule := range list {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if verb == "get" || verb == "list" || verb == "create" && slices.Contains(rule.Verbs, "patch") {
						continue
					}
					name, sub, _ := strings.Cut(resource, "/")
					if !slices.ContainsFunc(requests, func(q sandboxtest.Request) bool {
						return q.Verb == verb && q.Group == rule.APIGroups[0] && q.Resource == name && strings.Contains(q.URI, "/"+sub) &&
							(namespace == "" || q.Namespace == namespace) && namesOne(rule.ResourceNames, q.URI)
					}) {
						unused = append(unused, fmt.Sprintf("%s %s in %q", verb, resource, namespace))
					}
				}
			}
		}
	}
	return unused
}

// namesOne reports whether a URI has one of the names; without names it does.
func namesOne(names []string, uri string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(uri, name) })
}

// granted is a configuration with a ServiceAccount that has its generated roles.
type granted struct {
	rbacCase

	s     *sandboxtest.Sandbox
	ns    string
	user  string
	file  string // the configuration, with the kubeconfig of the user
	needs []rbac.Need
	rules rbac.Rules

	printed string // the output of router rbac
}

func newGranted(t *testing.T, s *sandboxtest.Sandbox, c rbacCase) *granted {
	t.Helper()
	ns, other := s.Namespace(t), s.Namespace(t)
	in := strings.NewReplacer("NS", ns, "OTHER", other, "KUBECONFIG", s.Kubeconfig())
	for _, text := range []*string{&c.config, &c.before, &c.after, &c.then} {
		*text = in.Replace(*text)
	}
	c.events, c.flags = slices.Clone(c.events), slices.Clone(c.flags)
	for _, list := range [][]string{c.events, c.flags} {
		for i := range list {
			list[i] = in.Replace(list[i])
		}
	}
	if c.after == "" {
		c.after = in.Replace(workMap)
	}
	if !strings.Contains(c.config, "sinks:") {
		c.config = "sinks: {out: {stdout: {}}}\n" + c.config
	}
	g := &granted{rbacCase: c, s: s, ns: ns, user: "system:serviceaccount:" + ns + ":router"}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s.Apply(t, ns, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: router}}")
	writeKubeconfig(t, kubeconfig, g.credentials(t))
	g.file = routertest.InstallAPI(t, kubeconfig, c.config)
	text, err := os.ReadFile(g.file)
	must.Succeed(t, err)
	if c.access {
		must.Succeed(t, os.WriteFile(g.file, []byte(strings.Replace(string(text), "listen: {", "listen: {access: kubernetes, ", 1)), 0o600))
	}
	g.needs, err = rbac.File(t.Context(), g.file, "", ns, compile.Components{
		Sinks: []plugins.SinkKind{kubernetes.Kind(), stdout.Kind()}, Emit: emit.New,
	})
	must.Succeed(t, err)
	if len(c.flags) == 2 {
		g.needs = rbac.Select(g.needs, c.flags[1:])
	}
	g.grant(t)
	return g
}

// credentials returns a token of the ServiceAccount. If it must not be in the groups that the API
// server adds to a token, the administrator impersonates it.
func (g *granted) credentials(t *testing.T) *rest.Config {
	t.Helper()
	cfg := g.s.RESTConfig()
	if g.public {
		cfg.Impersonate = g.impersonated(g.user)
		return cfg
	}
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": "router"},
	}}
	accounts := g.s.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(g.ns)
	answer, err := accounts.Create(t.Context(), request, metav1.CreateOptions{}, "token")
	must.Succeed(t, err)
	cfg.BearerToken, _, _ = unstructured.NestedString(answer.Object, "status", "token")
	return cfg
}

func (g *granted) impersonated(user string) rest.ImpersonationConfig {
	as := rest.ImpersonationConfig{UserName: user}
	if g.public {
		as.Groups = []string{"system:unauthenticated"} // instead of system:authenticated
	}
	return as
}

func writeKubeconfig(t *testing.T, file string, cfg *rest.Config) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken, Impersonate: cfg.Impersonate.UserName, ImpersonateGroups: cfg.Impersonate.Groups}
	k.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "c"
	must.Succeed(t, clientcmd.WriteToFile(*k, file))
}

// grant applies the output of router rbac.
func (g *granted) grant(t *testing.T) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := routertest.Command(append([]string{"rbac", "-config", g.file, "-namespace", g.ns, "-service-account", "router"}, g.flags...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("router rbac: %v: %s", err, &problems)
	}
	selects := slices.ContainsFunc(g.needs, func(n rbac.Need) bool { return n.Selected })
	if warns := strings.Contains(problems.String(), "namespaceSelector finds namespaces"); warns != selects {
		t.Errorf("it says %s", &problems)
	}
	g.printed = out.String()
	g.rules = rulesIn(t, out.String())
	g.s.Apply(t, "", out.String())
	if g.public {
		g.s.Apply(t, "", bindingOf("", g.ns+"-basic", "system:basic-user", g.user))
	}
}

// rulesIn returns the rules of the roles among manifests.
func rulesIn(t *testing.T, manifests string) rbac.Rules {
	t.Helper()
	rules := make(rbac.Rules)
	objects, err := manifest.Objects([]byte(manifests))
	must.Succeed(t, err)
	for _, text := range objects {
		var role struct {
			Kind     string
			Metadata struct{ Namespace string }
			Rules    []rbac.Rule
		}
		must.Succeed(t, json.Unmarshal(text, &role))
		if strings.HasSuffix(role.Kind, "Role") {
			rules[role.Metadata.Namespace] = append(rules[role.Metadata.Namespace], role.Rules...)
		}
	}
	return rules
}

// bindingOf returns the manifest that binds a ClusterRole, or a Role of a namespace, to users.
func bindingOf(namespace, name, role string, users ...string) string {
	kind, in := "ClusterRole", ""
	if namespace != "" {
		kind, in = "Role", ", namespace: "+namespace
	}
	var subjects []string
	for _, user := range users {
		subjects = append(subjects, fmt.Sprintf("{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}", user))
	}
	return fmt.Sprintf("---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: %[1]sBinding, metadata: {name: %[2]q%[3]s}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[4]q}, subjects: [%[5]s]}\n", kind, name, in, role, strings.Join(subjects, ", "))
}

// lacks checks the rights of a user.
func (g *granted) lacks(t *testing.T, client *informer.Client) check.Findings {
	t.Helper()
	found := check.Access(t.Context(), client, g.needs, g.file)
	if strings.Contains(found.Warnings.Error(), "were not checked") {
		return check.Findings{Problems: found.Warnings} // the right to check is not known yet
	}
	return found
}

// runsWithout403 runs the router until it has done its work.
func (g *granted) runsWithout403(t *testing.T) {
	t.Helper()
	client, err := informer.NewClient(config.Cluster{Kubeconfig: kubeconfigOf(t, g.file)}, config.Policy{})
	must.Succeed(t, err)
	defer client.Close()
	routertest.Poll(t, "the roles to be known", func() bool {
		found := g.lacks(t, client)
		return len(found.Problems) == 0 && len(found.Warnings) == 0
	})
	g.s.Apply(t, g.ns, g.before)
	r := routertest.StartFile(t, g.file)
	r.Ready(t)
	g.s.Apply(t, g.ns, g.after)
	if g.then != "" {
		r.Expect(t, g.events[:1]...)
		g.s.Apply(t, g.ns, g.then)
	}
	r.Expect(t, g.events...)
	const events = `deltarouter_route_events_total{result="%s",route="w",sink="cluster"}`
	if g.writes > 0 {
		routertest.Poll(t, "the writes", func() bool {
			return int(r.Metric(t, fmt.Sprintf(events, "delivered"))) == g.writes || r.Metric(t, fmt.Sprintf(events, "rejected")) > 0
		})
		if r.Metric(t, fmt.Sprintf(events, "rejected")) > 0 {
			t.Error("a write was rejected")
		}
	}
	if g.access {
		out, code := routertest.Control(t, g.file, "status", "-kubeconfig", kubeconfigOf(t, g.file))
		if want := "user \"" + g.user + "\" may not get /deltarouter/v1/status"; code != 1 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %s, want %s", code, out, want)
		}
	}
	if log := r.Log(); strings.Contains(strings.ToLower(log), "forbidden") {
		t.Error("the log says forbidden")
	}
	r.Kill(t)
}

func kubeconfigOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	cfg, _ := config.Parse(file, text, config.Policy{})
	return cfg.Cluster.Kubeconfig
}

// needsEachRule checks for each rule the rights of a user with all others: exactly this rule is
// missing.
func (g *granted) needsEachRule(t *testing.T) {
	t.Helper()
	type single struct {
		namespace string
		rule      rbac.Rule
	}
	var all []single
	for _, namespace := range slices.Sorted(maps.Keys(g.rules)) {
		for _, rule := range g.rules[namespace] {
			all = append(all, single{namespace, rule})
		}
	}
	without := func(i int) string { return fmt.Sprintf("%s-without-%d", g.ns, i) }
	for i, one := range all {
		var users []string
		for j := range all {
			if j != i {
				users = append(users, without(j))
			}
		}
		if g.public {
			g.s.Apply(t, "", bindingOf("", without(i)+"-basic", "system:basic-user", without(i)))
		}
		if len(users) > 0 {
			g.s.Apply(t, "", roleOf(t, one.namespace, without(i), one.rule)+bindingOf(one.namespace, without(i), without(i), users...))
		}
	}
	for i, one := range all {
		cfg := g.s.RESTConfig()
		cfg.Impersonate = g.impersonated(without(i))
		client, err := informer.NewClientFor(cfg)
		must.Succeed(t, err)
		want := rbac.Rules{one.namespace: {one.rule}}
		var found check.Findings
		routertest.Poll(t, fmt.Sprintf("only this rule to be missing: %v", want), func() bool {
			found = g.lacks(t, client)
			return reflect.DeepEqual(rulesIn(t, found.Roles), want)
		})
		said := append(found.Problems, found.Warnings...).Error()
		for _, word := range slices.Concat(one.rule.Verbs, one.rule.Resources, one.rule.ResourceNames, one.rule.NonResourceURLs) {
			if !strings.Contains(said, word) {
				t.Errorf("without %v, it does not name %s:\n%s", one, word, said)
			}
		}
		client.Close()
	}
}

// roleOf returns the manifest of a role with one rule.
func roleOf(t *testing.T, namespace, name string, rule rbac.Rule) string {
	t.Helper()
	kind := "ClusterRole"
	if namespace != "" {
		kind = "Role"
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "rules": []rbac.Rule{rule},
	})
	must.Succeed(t, err)
	return "---\n" + string(text) + "\n"
}
