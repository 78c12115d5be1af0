package chaos

import (
	"fmt"
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

// rewindable is a cluster with a history that goes on after a backup of it was made.
type rewindable struct {
	*sandboxtest.Sandbox

	ns     string
	maps   routertest.Objects
	backup string
	marks  int
}

func newRewindable(t *testing.T) *rewindable {
	t.Helper()
	s := sandboxtest.New(t, sandboxtest.Options{})
	c := &rewindable{Sandbox: s, ns: s.Namespace(t)}
	c.maps = routertest.Use(t, s, routertest.ConfigMaps, c.ns)
	for _, name := range []string{"same", "changed", "gone", "again", "noise"} {
		c.maps.Make(routertest.ConfigMap(name, "1"))
	}
	return c
}

// goOn makes the history that the restored backup will know nothing about.
func (c *rewindable) goOn(t *testing.T) {
	t.Helper()
	c.maps.Change("changed", `{"data":{"value":"2"}}`)
	c.maps.Remove("gone")
	c.maps.Remove("again")
	c.maps.Make(routertest.ConfigMap("again", "2"))
	c.maps.Make(routertest.ConfigMap("new", "1"))
	spend(t, c.maps, "noise", 300) // servers that start write too: they must not catch up
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

// TestBackupRestoredWhileDown: etcd is restored from an older backup while the router is down. What differs is delivered, nothing else.
func TestBackupRestoredWhileDown(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := routertest.Install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
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

// TestBackupRestoredWhileRunning is the same while the router runs.
func TestBackupRestoredWhileRunning(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := routertest.Install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	c.goOn(t)
	before, back := c.history()
	r.Expect(t, before...)
	c.RestoreEtcd(t, c.backup)
	r.Expect(t, append(before, back...)...)
	c.checkAfter(t, r, append(before, back...))
	if n := r.Metric(t, "deltarouter_relists_total"); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	r.Saved(t)
	r.Kill(t)

	// What was saved agrees with the restored cluster: nothing is delivered again.
	r = routertest.StartFile(t, file)
	c.checkAfter(t, r, nil)
}

// checkAfter looks whether the cache agrees with the cluster, whether the watch hears what happens now, and whether nothing came but
// what was expected.
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
