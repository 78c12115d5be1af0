package e2e

import (
	"fmt"
	"testing"

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
	maps   objects
	backup string
	marks  int
}

func newRewindable(t *testing.T) *rewindable {
	t.Helper()
	s := sandboxtest.New(t, sandboxtest.Options{})
	c := &rewindable{Sandbox: s, ns: s.Namespace(t)}
	c.maps = use(t, s, configMaps, c.ns)
	for _, name := range []string{"same", "changed", "gone", "again", "noise"} {
		c.maps.create(configMap(name, "1"))
	}
	return c
}

// goOn makes the history that the restored backup will know nothing about.
func (c *rewindable) goOn(t *testing.T) {
	t.Helper()
	c.maps.patch("changed", `{"data":{"value":"2"}}`)
	c.maps.remove("gone")
	c.maps.remove("again")
	c.maps.create(configMap("again", "2"))
	c.maps.create(configMap("new", "1"))
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
	file := install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := startFile(t, file)
	r.ready(t)
	c.goOn(t)
	before, back := c.history()
	exactly(t, summary(r.expect(t, before...)), before)
	if code := r.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.RestoreEtcd(t, c.backup)

	r = startFile(t, file)
	r.expect(t, back...)
	c.checkAfter(t, r, back)
}

// TestBackupRestoredWhileRunning is the same while the router runs.
func TestBackupRestoredWhileRunning(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := startFile(t, file)
	r.ready(t)
	c.goOn(t)
	before, back := c.history()
	r.expect(t, before...)
	c.RestoreEtcd(t, c.backup)
	r.expect(t, append(before, back...)...)
	c.checkAfter(t, r, append(before, back...))
	if n := r.relists(t); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	r.saved(t)
	r.kill(t)

	// What was saved agrees with the restored cluster: nothing is delivered again.
	r = startFile(t, file)
	c.checkAfter(t, r, nil)
}

// checkAfter looks whether the cache agrees with the cluster, whether the watch hears what happens now, and whether nothing came but
// what was expected.
func (c *rewindable) checkAfter(t *testing.T, r *router, want []string) {
	t.Helper()
	r.ready(t)
	n := c.ns + "/"
	c.marks++
	mark := fmt.Sprintf("mark-%d", c.marks)
	c.maps.patch("changed", fmt.Sprintf(`{"data":{"value":%q}}`, mark))
	c.maps.remove("gone")
	c.maps.create(configMap(mark, "1"))
	want = append(want, "all updated "+n+"changed", "all deleted "+n+"gone", "all added "+n+mark)
	events := r.expect(t, want...)
	exactly(t, summary(events), want)
	changed := about(events, n+"changed")
	if old := valueOf(t, changed[len(changed)-1], "oldObject"); old != "1" && old != "mark-1" {
		t.Errorf("the cache had the value %q, the restored cluster 1", old)
	}
	c.maps.create(configMap("gone", "1"))
	r.expect(t, append(want, "all added "+n+"gone")...)
}
