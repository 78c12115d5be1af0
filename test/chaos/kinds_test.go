package chaos

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestKindsWhileDown covers Secrets, of which only identities are on disk, sources with selectors
// and with several namespaces, and metadata and identity caches. The changes while the router was
// down must be delivered for all of them, with and without the history.
func TestKindsWhileDown(t *testing.T) {
	t.Parallel()
	s := sandboxtest.Borrow(t)
	for _, gap := range []bool{false, true} {
		t.Run(map[bool]string{false: "resumed", true: "after a gap"}[gap], func(t *testing.T) {
			ns, other := s.Namespace(t), s.Namespace(t)
			k := &kinds{t: t, s: s, ns: ns, other: other}
			k.fill()
			r := routertest.StartFile(t, k.install())
			r.Ready(t)
			r.Saved(t)
			r.Kill(t)
			want := k.change()
			if gap {
				s.StopAPIServer(t)
				s.CompactEtcd(t)
				s.StartAPIServer(t)
			}
			r = routertest.StartFile(t, k.file)
			r.Expect(t, want...)
			r.Ready(t)
			routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("last", "1", "app=web"))
			want = append(want, "web added "+ns+"/last", "meta added "+ns+"/last", "ids added "+ns+"/last")
			events := r.Expect(t, want...)
			routertest.Exactly(t, routertest.Summary(events), want)
			for _, e := range events {
				if strings.HasPrefix(e.Route, "secrets") && strings.Contains(string(e.Data), "Y2FuYXJ5") {
					t.Errorf("%s has data of a Secret", e)
				}
			}
			if code := r.Stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			// Without changes there must be no events.
			r = routertest.StartFile(t, k.file)
			r.Ready(t)
			routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("mark", "1", "app=db"))
			routertest.Exactly(t, routertest.Summary(r.Expect(t, "meta added "+ns+"/mark", "ids added "+ns+"/mark")),
				[]string{"meta added " + ns + "/mark", "ids added " + ns + "/mark"})
		})
	}
}

type kinds struct {
	t                   *testing.T
	s                   *sandboxtest.Sandbox
	ns, other, file     string
	maps, away, secrets routertest.Objects
}

func (k *kinds) fill() {
	k.maps, k.away = routertest.Use(k.t, k.s, routertest.ConfigMaps, k.ns), routertest.Use(k.t, k.s, routertest.ConfigMaps, k.other)
	k.secrets = routertest.Use(k.t, k.s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, k.ns)
	for _, name := range []string{"same", "gone", "changed", "left"} {
		k.maps.Make(routertest.ConfigMap(name, "1", "app=web"))
		k.away.Make(routertest.ConfigMap(name, "1", "app=web"))
		secret := routertest.ConfigMap(name, "Y2FuYXJ5")
		secret.SetKind("Secret")
		k.secrets.Make(secret)
	}
	k.maps.Make(routertest.ConfigMap("joins", "1", "app=db"))
}

func (k *kinds) install() string {
	k.file = routertest.Install(k.t, k.s.Kubeconfig(), fmt.Sprintf(`
sources:
  web: {resource: v1/configmaps, namespaces: [%[1]s, %[2]s], labelSelector: app=web}
  meta: {resource: v1/configmaps, namespaces: %[1]s, cache: metadata}
  ids: {resource: v1/configmaps, namespaces: %[1]s, cache: identity}
  secrets: {resource: v1/secrets, namespaces: %[1]s}
sinks: {out: {stdout: {}}}
routes:
  - {name: web, from: web, ops: [added, updated, deleted, deselected], to: out}
  - {name: meta, from: meta, to: out}
  - {name: ids, from: ids, to: out}
  - {name: secrets, from: secrets, to: out}
`, k.ns, k.other))
	return k.file
}

// change changes the objects as their names say, and returns the expected events.
func (k *kinds) change() (want []string) {
	for _, m := range []routertest.Objects{k.maps, k.away, k.secrets} {
		m.Remove("gone")
		m.Change("changed", `{"metadata":{"annotations":{"changed":"yes"}}}`)
	}
	for _, m := range []routertest.Objects{k.maps, k.away} {
		m.Change("left", `{"metadata":{"labels":{"app":"db"}}}`)
	}
	k.maps.Change("joins", `{"metadata":{"labels":{"app":"web"}}}`)
	for _, ns := range []string{k.ns, k.other} {
		want = append(want, "web deleted "+ns+"/gone", "web updated "+ns+"/changed", "web deselected "+ns+"/left")
	}
	want = append(want, "web added "+k.ns+"/joins", "secrets deleted "+k.ns+"/gone", "secrets updated "+k.ns+"/changed")
	for _, route := range []string{"meta", "ids"} {
		want = append(want, route+" deleted "+k.ns+"/gone")
		for _, name := range []string{"changed", "left", "joins"} {
			want = append(want, route+" updated "+k.ns+"/"+name)
		}
	}
	return want
}
