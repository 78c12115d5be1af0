package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestFleetRights shows that the rights of router rbac suffice for a member of a fleet, which takes
// and renews its Lease, and that each rule is needed.
func TestFleetRights(t *testing.T) {
	// Guarantee: rbac-exact
	t.Parallel()
	c := natstest.Start(t, natstest.Config{Servers: 1})
	s := sandboxtest.Start(t)
	g := newGranted(t, s, rbacCase{
		config: "fleet: {name: NS, replicas: 1, lease: 6s, nats: {servers: [" + strings.Join(c.URLs(), ", ") + "]}}\n" +
			"sources: {s: {resource: v1/configmaps, namespaces: NS}}\n" +
			// The router may be ready as a standby before it leads.
			"routes: [{name: r, from: s, ops: [added], existing: deliver, to: out}]\n",
		events: added,
	})
	routertest.Setenv(t, "POD_NAMESPACE", g.ns)
	routertest.Setenv(t, "POD_NAME", "deltarouter-0")
	g.runsWithout403(t)
	for _, q := range s.Requests(t, nil) {
		if q.User == g.user && q.Code == 403 {
			t.Errorf("%s %s is forbidden", q.Verb, q.URI)
		}
	}
	g.needsEachRule(t)
}

// TestFleetPermissions shows that a leader, a standby and a worker do their work as users of NATS
// with exactly the permissions that router check -connect prints.
func TestFleetPermissions(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	routertest.Setenv(t, "POD_NAMESPACE", ns)
	names := fleet.NamesOf("test")
	c := natstest.Start(t, natstest.Config{More: fmt.Sprintf("authorization { users [\n{user: member, password: p, %s}\n{user: worker, password: p, %s}\n] }\n",
		fleet.Permissions(names, fleet.Member), fleet.Permissions(names, fleet.Worker))})
	file := func(name, user string) string {
		dir := t.TempDir()
		text := fmt.Sprintf(`version: 1
cluster: {name: test, kubeconfig: %q}
state: {dir: %q}
listen: {probes: "127.0.0.1:0"}
fleet: {name: test, replicas: 1, lease: 6s, nats: {servers: [%q], credentials: {user: %s, password: p}}}
sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {out: {stdout: {}}}
routes:
  - {name: local, from: maps, filter: object.metadata.name == "work", existing: deliver, ops: [added], to: out}
  - {name: shared, from: maps, filter: object.metadata.name == "work", existing: deliver, ops: [added], to: out, workers: {partitions: 2, pending: 16}}
`, s.Kubeconfig(), filepath.Join(dir, "state"), c.URL(), user, ns)
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	leader := routertest.StartFile(t, file("leader.yaml", "member"))
	leader.WaitLog(t, "a leader", func(log string) bool { return strings.Contains(log, "this member leads") })
	standby := routertest.StartFile(t, file("standby.yaml", "member"))
	worker := routertest.StartCommand(t, routertest.Command("worker", "-config", file("worker.yaml", "worker")))
	s.Apply(t, ns, strings.ReplaceAll(workMap, "NS", ns))
	leader.Expect(t, "local added "+ns+"/work")
	worker.Expect(t, "shared added "+ns+"/work")
	standby.WaitLog(t, "a snapshot of the leader", func(log string) bool { return strings.Contains(log, "snapshot") })
	// The leader's user lacks the permissions of a worker.
	check := routertest.Command("check", "-connect", "-config", file("checked.yaml", "member"))
	check.Env = routertest.Environ(t)
	out, err := check.CombinedOutput()
	for _, want := range []string{"the router lacks permissions in NATS: ", "publish $JS.ACK.DR_test_WORK.>", "# The permissions of the leader, the standby and the workers in NATS"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("check -connect says not %q but %v: %s", want, err, out)
		}
	}
	leader.Kill(t)
	standby.WaitLog(t, "a takeover", func(log string) bool { return strings.Contains(log, "this member leads") })
	for _, r := range []*routertest.Router{leader, standby, worker} {
		if log := r.Log(); strings.Contains(strings.ToLower(log), "permissions violation") {
			t.Error("a permission is missing")
		}
	}
}
