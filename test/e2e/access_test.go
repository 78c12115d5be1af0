package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// checkConnect runs check -connect. It replaces the path of the file in the output by config.yaml.
func checkConnect(t *testing.T, file string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := routertest.Command("check", "-config", file, "-connect")
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), strings.ReplaceAll(problems.String(), file, "config.yaml"), code
}

// TestCheckAccess shows that check -connect names each missing right of the user at the source that
// needs it, and prints roles with exactly these rights. After they are applied, it finds nothing,
// and the router runs.
func TestCheckAccess(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Start(t).WithUser(t)
	ns, other := s.Namespace(t), s.Namespace(t)
	s.Grant(t, ns, "", []string{"configmaps"}, []string{"get", "list", "watch"})
	s.Grant(t, ns, "apps", []string{"deployments"}, []string{"list"})
	file := routertest.Install(t, s.LimitedKubeconfig(), fmt.Sprintf(`sinks: {out: {stdout: {}}, hook: {webhook: {url: "http://127.0.0.1:1/s3cret"}}}
sources:
  maps: {resource: v1/configmaps, namespaces: %[1]s}
  deployments: {resource: apps/v1/deployments, namespaces: [%[1]s, %[2]s]}
  pods: {resource: v1/pods, namespaces: %[1]s, labelSelector: app=web}
  nodes: {resource: v1/nodes}
routes:
  - {name: all, from: [maps, deployments, pods, nodes], to: [out, hook]}
traces: {endpoint: "http://127.0.0.1:1"}
`, ns, other))
	check := func() (stdout, stderr string, code int) { return checkConnect(t, file) }

	var roles, said string
	routertest.Poll(t, "the grants to be known", func() bool {
		code := 0
		if roles, said, code = check(); code != 2 {
			t.Fatal(code, roles, said)
		}
		return !strings.Contains(said, "sources.maps")
	})
	for _, want := range []string{
		fmt.Sprintf("config.yaml:8:27: sources.deployments.resource: the router may not watch deployments.apps in %s; the rules below allow it", ns),
		fmt.Sprintf("config.yaml:8:27: sources.deployments.resource: the router may not list and watch deployments.apps in %s; the rules below allow it", other),
		fmt.Sprintf("config.yaml:9:20: sources.pods.resource: the router may not list and watch pods in %s; the rules below allow it", ns),
		fmt.Sprintf("config.yaml:9:20: warning: sources.pods.resource: the router may not get pods in %s; so it needs lists", ns),
		"config.yaml:10:21: sources.nodes.resource: the router may not list and watch nodes; the rules below allow it",
		"config.yaml: warning: cluster: the router may not get namespaces kube-system",
		"config.yaml:5:34: warning: sinks.hook: it cannot be reached now: http://127.0.0.1:1: ",
		"config.yaml:13:9: warning: traces: it cannot be reached now: http://127.0.0.1:1: ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said+roles, "sources.maps") || strings.Contains(said+roles, "s3cret") || strings.Contains(roles, "configmaps") {
		t.Errorf("it says too much:\n%s%s", said, roles)
	}

	s.Apply(t, "", roles)
	routertest.Poll(t, "the rights to be given", func() bool {
		out, said, code := check()
		return code == 0 && strings.HasSuffix(out, ": ok\n") && !strings.Contains(said, "may not")
	})
	r := routertest.StartFile(t, file)
	r.Ready(t)
}
