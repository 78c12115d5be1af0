package chaos

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// TestBackupRestoredPastOurs: etcd is restored from an older backup, and when the router looks again, the versions that it gives out have
// passed those that the router had seen. Nothing tells of it. A list that is asked for finds what differs, and delivers that and nothing
// else; after it, cache, state folder and cluster agree.
func TestBackupRestoredPastOurs(t *testing.T) {
	c := newRewindable(t)
	c.backup = c.SaveEtcd(t)
	file := routertest.InstallAPI(t, c.Kubeconfig(), fmt.Sprintf(keepConfigMaps, c.ns))
	r := routertest.StartFile(t, file)
	r.Ready(t)
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
	routertest.Exactly(t, routertest.Summary(r.Expect(t, want...)), want) // it noticed nothing

	out, code := routertest.Control(t, file, "resync", "-relist")
	if code != 0 || !strings.Contains(out, fmt.Sprintf("%d deltas of what differs", len(back))) {
		t.Errorf("router resync -relist: exit code %d\n%s", code, out)
	}
	want = append(want, back...)
	r.Expect(t, want...)
	c.checkAfter(t, r, want)
	if n := r.Metric(t, "deltarouter_relists_total"); n != 1 {
		t.Errorf("%v relists, want one", n)
	}
	r.Saved(t)
	r.Kill(t)
	r = routertest.StartFile(t, file)
	c.checkAfter(t, r, nil)
}
