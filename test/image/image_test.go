//go:build linux

// Package image runs the container image like a hardened pod does, on the sandbox's API server.
package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(rootVariable); root != "" {
		os.Exit(become(root))
	}
	sandboxtest.Main(m)
}

// TestImage runs the image as user 65532 with a read-only root and no capabilities. The router
// becomes ready and delivers, its commands find it, and it knows time zones.
func TestImage(t *testing.T) {
	c := build(t)
	if want := fmt.Sprintf("%d:%d", user, user); c.User != want || c.WorkingDir != "/var/lib/deltarouter" {
		t.Errorf("the image runs as %s in %s", c.User, c.WorkingDir)
	}
	c.needNamespaces(t)

	s, ns := sandboxtest.StartNamespace(t)
	config, state := t.TempDir(), t.TempDir()
	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(config, "kubeconfig"), kubeconfig, 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(config, "config.yaml"), fmt.Appendf(nil, `version: 1
cluster: {name: test, kubeconfig: kubeconfig}
state: {dir: /var/lib/deltarouter}
listen: {probes: "127.0.0.1:0", api: "unix:/var/lib/deltarouter/api.sock"}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes: [{name: all, from: maps, to: out}]
`, ns), 0o600))

	r := routertest.StartCommand(t, c.command(config, state, c.Cmd...))
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("a", "1"))
	r.Expect(t, "all added "+ns+"/a")
	checkStatus(t, r.Process().Pid)

	if out := c.output(t, config, state, "get", "maps"); !strings.Contains(out, "a") || !strings.Contains(out, ns) {
		t.Errorf("router get maps prints %s", out)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(config, "object.yaml"), []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"), 0o600))
	hour := `timestamp("2026-07-01T12:00:00Z").getHours("Europe/Berlin")`
	if out := c.output(t, config, state, "eval", "-object", "/etc/deltarouter/object.yaml", hour); strings.TrimSpace(out) != "14" {
		t.Errorf("the hour in Berlin at 12:00 UTC in summer is %s, want 14", out)
	}
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// output runs another program of the container beside the router, as kubectl exec does.
func (c container) output(t *testing.T, config, state string, args ...string) string {
	t.Helper()
	out, err := c.command(config, state, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("router %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// checkStatus checks the rights of the router's process with those that the kernel reports.
func checkStatus(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.Succeed(t, err)
	const none = "0000000000000000"
	for _, want := range []string{"CapInh:\t" + none, "CapPrm:\t" + none, "CapEff:\t" + none, "CapBnd:\t" + none, "CapAmb:\t" + none, "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("the process has no %q:\n%s", want, status)
		}
	}
}
