package e2e

import (
	"fmt"
	"testing"
)

// TestBackupRestoredSameVersion: after the restore, an object is changed and gets the very resourceVersion that it had before.
func TestBackupRestoredSameVersion(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := install(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := startFile(t, file)
	r.ready(t)
	spend(t, c.maps, "noise", 300)
	c.maps.patch("changed", `{"data":{"value":"before"}}`)
	version := number(c.maps.version("changed"))
	c.maps.create(configMap("last", "1"))
	spend(t, c.maps, "noise", 300)
	r.expect(t, "all updated "+c.ns+"/changed", "all added "+c.ns+"/last")
	r.stop(t)

	c.RestoreEtcd(t, c.backup)
	for current(t, c.maps) < version-1 {
		c.maps.patch("noise", fmt.Sprintf(`{"data":{"value":"again-%d"}}`, current(t, c.maps)))
	}
	c.maps.patch("changed", `{"data":{"value":"after"}}`)
	if got := number(c.maps.version("changed")); got != version {
		t.Skipf("somebody else wrote at that moment: the object is at %d, not at %d", got, version)
	}
	r = startFile(t, file)
	r.expect(t, "all deleted "+c.ns+"/last")
	r.ready(t)
	c.maps.create(configMap("mark", "1"))
	events := r.expect(t, "all added "+c.ns+"/mark")
	changed := about(events, c.ns+"/changed")
	if len(changed) != 1 || valueOf(t, changed[0], "object") != "after" {
		t.Errorf("got %q: the object differs from what was delivered of it", summary(events))
	}
}
