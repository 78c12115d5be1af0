package chaos

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// TestBackupRestoredSameVersion: after the restore, an object is changed and gets the very resourceVersion that it had before.
func TestBackupRestoredSameVersion(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := routertest.Install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
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
