package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/test/kubelettest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

const inPodConfig = `
sinks: {out: {stdout: {}}}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
routes: [{name: all, from: maps, ops: [added, sync], to: out}]
`

// inPod is a router that a cluster has as the pod router-0 of a namespace.
type inPod struct {
	*routertest.Router

	sandbox *sandboxtest.Sandbox
	kubelet *kubelettest.Kubelet
	ns      string
	file    string // of the configuration
	text    string // the configuration
	port    string // of listen.api
	admin   string // a kubeconfig
}

// startInPod runs a router, and makes a pod for it whose kubelet is a stand-in: the connections of
// a tunnel go from the API server to the kubelet, and from there to the router on this machine.
func startInPod(t *testing.T, s *sandboxtest.Sandbox, ns, listen string) *inPod {
	t.Helper()
	p := &inPod{sandbox: s, ns: ns, admin: s.Kubeconfig(), kubelet: kubelettest.Start(t)}
	p.file = routertest.Install(t, p.admin, fmt.Sprintf(inPodConfig, ns))
	text, err := os.ReadFile(p.file)
	must.Succeed(t, err)
	p.text = strings.Replace(string(text), `listen: {`, `listen: {api: "127.0.0.1:0", `+listen, 1)
	must.Succeed(t, os.WriteFile(p.file, []byte(p.text), 0o600))
	p.Router = routertest.StartFile(t, p.file)
	p.Ready(t)
	address := regexp.MustCompile(`"for":"api","address":"127.0.0.1:(\d+)"`)
	p.WaitLog(t, "the address of the API", func(log string) bool {
		if found := address.FindStringSubmatch(log); found != nil {
			p.port = found[1]
		}
		return p.port != ""
	})
	s.Apply(t, "", p.kubelet.Node(ns))
	s.Apply(t, ns, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: router-0}, spec: {nodeName: %s, terminationGracePeriodSeconds: 0,
  containers: [{name: router, image: router, ports: [{name: api, containerPort: %s}]}]}}`, ns, p.port))
	pods := routertest.Use(t, s, routertest.Pods, ns)
	pods.Change("router-0", `{"status": {"phase": "Running"}}`, "status")
	t.Cleanup(func() {
		must.Report(t, s.Dynamic().Resource(nodes).Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}))
	})
	return p
}

// router runs a command with -in, and returns its output and exit code.
func (p *inPod) router(t *testing.T, kubeconfig string, args ...string) (out string, code int) {
	t.Helper()
	cmd := routertest.Command(append(args, "-in", p.ns+"/router-0", "-kubeconfig", kubeconfig)...)
	text, _ := cmd.CombinedOutput() // the exit code says it
	return string(text), cmd.ProcessState.ExitCode()
}

// TestInPod reaches a router through the API server of its cluster, over a WebSocket where the API
// server can: all commands work, a stream goes on until it is interrupted or the tunnel is lost,
// and the errors name the remedy.
func TestInPod(t *testing.T) {
	// Guarantee: cli-in-pod
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("m0", "0"))
	p := startInPod(t, s, ns, "")

	backup := filepath.Join(t.TempDir(), "backup.db")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "ready\n"},
		{[]string{"get", "configmaps", "-o", "name"}, ns + "/m0\n"},
		{[]string{"dlq", "list"}, "There are no dead letters.\n"},
		{[]string{"resync", "-source", "maps"}, "source maps: 1 object put through"},
		{[]string{"state", "inspect"}, "router-0"},
		{[]string{"state", "backup", backup}, "Wrote " + backup},
	} {
		if out, code := p.router(t, p.admin, c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%q: exit code %d, %s", c.args, code, out)
		}
	}
	verb := "get" // a WebSocket
	if os.Getenv("SANDBOX") != "" {
		verb = "create" // Kubernetes 1.30 has SPDY only
	}
	routertest.Poll(t, "the tunnels in the audit log", func() bool {
		return len(s.Requests(t, func(q sandboxtest.Request) bool {
			return q.Verb == verb && q.Code == http.StatusSwitchingProtocols && strings.HasSuffix(strings.Split(q.URI, "?")[0], "/namespaces/"+ns+"/pods/router-0/portforward")
		})) > 0
	})

	in := []string{"-in", ns + "/router-0", "-kubeconfig", p.admin, "-o", "name"}
	first, second := watch(t, append(in, "maps")...), watch(t, append(in, "maps")...)
	first.expect(t, "ADDED "+ns+"/m0")
	second.expect(t, "ADDED "+ns+"/m0")
	maps.Make(routertest.ConfigMap("m1", "1"))
	first.expect(t, "ADDED "+ns+"/m1")
	second.expect(t, "ADDED "+ns+"/m1")
	if code := first.end(true); code != 0 || first.errs.Len() > 0 {
		t.Errorf("exit code %d after an interrupt: %s", code, &first.errs)
	}
	p.kubelet.Break()
	want := fmt.Sprintf("router get: the connection to pod %[1]s/router-0 was lost: it may have been deleted or restarted; see kubectl -n %[1]s get pod router-0, and run the command again\n", ns)
	if code := second.end(false); code != 1 || second.errs.String() != want {
		t.Errorf("exit code %d when the tunnel is lost: %s", code, &second.errs)
	}

	if code := p.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out, code := p.router(t, p.admin, "status"); code != 1 || !strings.Contains(out, "in pod "+ns+"/router-0 no process listens on 127.0.0.1:"+p.port+": ") || strings.Count(out, "\n") != 1 {
		t.Errorf("exit code %d without a router: %s", code, out)
	}
}

// TestInPodRights shows that the API server decides who reaches a router, and that create on
// pods/portforward is the right to it. A user with this right alone gets no WebSocket.
func TestInPodRights(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	p := startInPod(t, s, ns, "")
	for _, c := range []struct {
		resource, verb string // granted before
		want           string
	}{
		{"", "", "you may not reach pod " + ns + "/router-0: a role in the namespace " + ns + " must allow get on pods ("},
		{"pods", "get", "you may not reach pod " + ns + "/router-0: a role in the namespace " + ns + " must allow create on pods/portforward ("},
		{"pods/portforward", "create", "ready\n"},
	} {
		if c.verb != "" {
			s.Grant(t, ns, "", []string{c.resource}, []string{c.verb})
		}
		var out string
		defer func() {
			if t.Failed() {
				t.Logf("the last output: %s", out)
			}
		}()
		routertest.Poll(t, c.want, func() bool {
			out, _ = p.router(t, s.LimitedKubeconfig(), "status")
			return strings.Contains(out, c.want)
		})
	}
	if out, _ := p.router(t, s.LimitedKubeconfig(), "status", "-context", "none"); !strings.Contains(out, `context "none" does not exist`) {
		t.Errorf("a context that does not exist: %s", out)
	}
}

// TestInPodAccess shows that a router with listen.access and TLS knows the user by the kubeconfig:
// by the token, or by the client certificate, with -in and with the other ways to it.
func TestInPodAccess(t *testing.T) {
	// Guarantee: cli-in-pod
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	authority, dir := sinktest.NewAuthority(t), t.TempDir()
	ca := sinktest.File(t, "ca.crt", authority.PEM)
	p := startInPod(t, s, ns, fmt.Sprintf("access: kubernetes, tls: {%s, clientCA: {file: %q}}, ", authority.Files(), ca))
	ann, key := authority.IssueTo("ann-"+ns, time.Hour)
	s.Apply(t, "", fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s-dropper},
  rules: [{nonResourceURLs: [/deltarouter/v1/deadletters/drop], verbs: [create]}]}`, ns)+"\n"+bindingOf("", ns+"-dropper", ns+"-dropper", "ann-"+ns))
	s.Grant(t, ns, "", []string{"pods"}, []string{"get"})
	s.Grant(t, ns, "", []string{"pods/portforward"}, []string{"create"})
	limited, certified := s.LimitedKubeconfig(), filepath.Join(dir, "certified")
	k, err := clientcmd.LoadFromFile(limited)
	must.Succeed(t, err)
	for _, user := range k.AuthInfos { // the user limited at the API server, ann at the router
		user.ClientCertificateData, user.ClientKeyData = []byte(ann), []byte(key)
	}
	must.Succeed(t, clientcmd.WriteToFile(*k, certified))
	config := sinktest.File(t, "config.yaml", strings.Replace(p.text, "127.0.0.1:0", "127.0.0.1:"+p.port, 1))
	const dropped = "Dropped 0 dead letters"
	address := []string{"-api", "https://127.0.0.1:" + p.port, "-ca", ca}
	for _, c := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{"the administrator", []string{"-in", ns + "/router-0", "-kubeconfig", p.admin}, dropped, 0},
		{"without the right", []string{"-in", ns + "/router-0", "-kubeconfig", limited}, `user "limited" may not create`, 1},
		{"by certificate", []string{"-in", ns + "/router-0", "-kubeconfig", certified}, dropped, 0},
		{"-config without a kubeconfig", []string{"-config", config}, "the router asks for credentials: choose those of a kubeconfig", 1},
		{"-config as administrator", []string{"-config", config, "-kubeconfig", p.admin}, dropped, 0},
		{"-config without the right", []string{"-config", config, "-kubeconfig", limited}, `user "limited" may not create`, 1},
		{"-config by certificate", []string{"-config", config, "-kubeconfig", certified}, dropped, 0},
		{"-api as administrator", append(address, "-kubeconfig", p.admin), dropped, 0},
		{"-api by certificate", append(address, "-kubeconfig", certified), dropped, 0},
		{"-api with another authority", append(address[:2:2], "-kubeconfig", p.admin), "certificate signed by unknown authority", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out string
			defer func() {
				if t.Failed() {
					t.Log(out)
				}
			}()
			// The API server notices a new role with a delay.
			routertest.Poll(t, c.want, func() bool {
				cmd := routertest.Command(append([]string{"dlq", "drop", "-route", "all"}, c.args...)...)
				text, _ := cmd.CombinedOutput() // the exit code says it
				out = string(text)
				return strings.Contains(out, c.want) && cmd.ProcessState.ExitCode() == c.code
			})
		})
	}
}
