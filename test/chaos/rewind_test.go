package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const keepConfigMaps = `
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
sinks: {out: {stdout: {}}}
routes:
  - name: all
    from: maps
    filter: object.metadata.name != "noise"
    existing: deliver
    to: out
`

// rewindable is a cluster whose history continues after a backup of it.
type rewindable struct {
	*sandboxtest.Sandbox

	ns     string
	maps   routertest.Objects
	backup string
	marks  int
}

// newRewindable makes the cluster and its backup, and starts a router that sees all of it.
func newRewindable(t *testing.T) (c *rewindable, file string, r *routertest.Router) {
	t.Helper()
	s := sandboxtest.Borrow(t)
	c = &rewindable{Sandbox: s, ns: s.Namespace(t)}
	c.maps = routertest.Use(t, s, routertest.ConfigMaps, c.ns)
	for _, name := range []string{"same", "changed", "gone", "again", "noise"} {
		c.maps.Make(routertest.ConfigMap(name, "1"))
	}
	c.backup = c.SaveEtcd(t)
	file = routertest.InstallAPI(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r = routertest.StartFile(t, file)
	r.Ready(t)
	return c, file, r
}

// goOn makes the changes that the backup does not contain.
func (c *rewindable) goOn(t *testing.T) {
	t.Helper()
	c.maps.Change("changed", `{"data":{"value":"2"}}`)
	c.maps.Remove("gone")
	c.maps.Remove("again")
	c.maps.Make(routertest.ConfigMap("again", "2"))
	c.maps.Make(routertest.ConfigMap("new", "1"))
	spend(t, c.maps, "noise", 300) // starting servers write too: they must not catch up
}

func (c *rewindable) history() (before, back []string) {
	n := c.ns + "/"
	before = []string{
		"all added " + n + "same", "all added " + n + "changed", "all added " + n + "gone", "all added " + n + "again",
		"all updated " + n + "changed", "all deleted " + n + "gone", "all deleted " + n + "again", "all added " + n + "again", "all added " + n + "new",
	}
	back = []string{
		"all updated " + n + "changed", "all added " + n + "gone", "all deleted " + n + "again", "all added " + n + "again", "all deleted " + n + "new",
	}
	return before, back
}

// TestBackupRestoredWhileDown restores etcd from an older backup while the router is down. Only the
// differences may be delivered.
func TestBackupRestoredWhileDown(t *testing.T) {
	// Guarantee: history-lost
	t.Parallel()
	c, file, r := newRewindable(t)
	c.goOn(t)
	before, back := c.history()
	routertest.Exactly(t, routertest.Summary(r.Expect(t, before...)), before)
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.RestoreEtcd(t, c.backup)

	r = routertest.StartFile(t, file)
	r.Expect(t, back...)
	c.checkAfter(t, r, back)
}

// TestBackupRestoredWhileRunning restores the backup while the router runs.
func TestBackupRestoredWhileRunning(t *testing.T) {
	// Guarantee: server-rewound
	t.Parallel()
	c, file, r := newRewindable(t)
	c.goOn(t)
	before, back := c.history()
	r.Expect(t, before...)
	c.RestoreEtcd(t, c.backup)
	r.Expect(t, append(before, back...)...)
	c.checkAfter(t, r, append(before, back...))
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	r.Saved(t)
	r.Kill(t)

	// The saved state agrees with the restored cluster, so nothing is delivered again.
	r = routertest.StartFile(t, file)
	c.checkAfter(t, r, nil)
}

// checkAfter checks that the cache agrees with the cluster, that the watch reports new changes, and
// that only the expected events were delivered.
func (c *rewindable) checkAfter(t *testing.T, r *routertest.Router, want []string) {
	t.Helper()
	r.Ready(t)
	n := c.ns + "/"
	c.marks++
	mark := fmt.Sprintf("mark-%d", c.marks)
	c.maps.Change("changed", fmt.Sprintf(`{"data":{"value":%q}}`, mark))
	c.maps.Remove("gone")
	c.maps.Make(routertest.ConfigMap(mark, "1"))
	want = append(want, "all updated "+n+"changed", "all deleted "+n+"gone", "all added "+n+mark)
	events := r.Expect(t, want...)
	routertest.Exactly(t, routertest.Summary(events), want)
	changed := routertest.About(events, n+"changed")
	if old := valueOf(t, changed[len(changed)-1], "oldObject"); old != "1" && old != "mark-1" {
		t.Errorf("the cache had the value %q, the restored cluster 1", old)
	}
	c.maps.Make(routertest.ConfigMap("gone", "1"))
	r.Expect(t, append(want, "all added "+n+"gone")...)
}

// TestBackupRestoredSameVersion changes an object after the restore so that it gets the
// resourceVersion that it had before.
func TestBackupRestoredSameVersion(t *testing.T) {
	t.Parallel()
	c, file, r := newRewindable(t)
	spend(t, c.maps, "noise", 300)
	c.maps.Change("changed", `{"data":{"value":"before"}}`)
	version := number(c.maps.Version("changed"))
	c.maps.Make(routertest.ConfigMap("last", "1"))
	spend(t, c.maps, "noise", 300)
	r.Expect(t, "all updated "+c.ns+"/changed", "all added "+c.ns+"/last")
	r.Stop(t)

	c.RestoreEtcd(t, c.backup)
	for current(t, c.maps) < version-1 {
		c.maps.Change("noise", fmt.Sprintf(`{"data":{"value":"again-%d"}}`, current(t, c.maps)))
	}
	c.maps.Change("changed", `{"data":{"value":"after"}}`)
	if got := number(c.maps.Version("changed")); got != version {
		t.Skipf("somebody else wrote at that moment: the object is at %d, not at %d", got, version)
	}
	r = routertest.StartFile(t, file)
	r.Expect(t, "all deleted "+c.ns+"/last")
	r.Ready(t)
	c.maps.Make(routertest.ConfigMap("mark", "1"))
	events := r.Expect(t, "all added "+c.ns+"/mark")
	changed := routertest.About(events, c.ns+"/changed")
	if len(changed) != 1 || valueOf(t, changed[0], "object") != "after" {
		t.Errorf("got %q: the object differs from what was delivered of it", routertest.Summary(events))
	}
}

// TestBackupRestoredPastOurs restores etcd from an older backup. When the router connects again,
// the new versions have passed those that the router had seen, so it cannot notice the restore. A
// requested relist must find and deliver exactly the differences; after it, cache, state folder and
// cluster must agree.
func TestBackupRestoredPastOurs(t *testing.T) {
	// Guarantee: relist
	t.Parallel()
	c, file, r := newRewindable(t)
	c.goOn(t)
	before, back := c.history()
	r.Expect(t, before...)
	seen := current(t, c.maps)
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.RestoreEtcd(t, c.backup)
	if now := current(t, c.maps); now > seen {
		t.Fatalf("the restored cluster is at %d, and was at %d: the backup is too young", now, seen)
	}
	for current(t, c.maps) <= seen {
		spend(t, c.maps, "noise", 50)
	}

	r = routertest.StartFile(t, file)
	r.Ready(t)
	n := c.ns + "/"
	c.maps.Make(routertest.ConfigMap("sign", "1"))
	want := []string{"all added " + n + "sign"}
	// the router has noticed nothing
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want)

	out, code := routertest.Control(t, file, "resync", "-relist")
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d deltas of what differs", len(back))) {
		t.Errorf("router resync -relist: exit code %d\n%s", code, out)
	}
	want = append(want, back...)
	r.Expect(t, want...)
	c.checkAfter(t, r, want)
	if n := r.Metric(t, "deltarouter_source_relists_total"); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	r.Saved(t)
	r.Kill(t)
	r = routertest.StartFile(t, file)
	c.checkAfter(t, r, nil)
}
