package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestKindsWhileDown: Secrets, of which only identities are on disk, sources with selectors, several namespaces, metadata and identity
// caches. What happened while the router was down is delivered of all of them, be the history still there or not.
func TestKindsWhileDown(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	for _, gap := range []bool{false, true} {
		t.Run(map[bool]string{false: "resumed", true: "after a gap"}[gap], func(t *testing.T) {
			ns, other := s.Namespace(t), s.Namespace(t)
			k := &kinds{t: t, s: s, ns: ns, other: other}
			k.fill()
			r := startFile(t, k.install())
			r.ready(t)
			r.saved(t)
			r.kill(t)
			want := k.change()
			if gap {
				s.StopAPIServer(t)
				s.CompactEtcd(t)
				s.StartAPIServer(t)
			}
			r = startFile(t, k.file)
			r.expect(t, want...)
			r.ready(t)
			use(t, s, configMaps, ns).create(configMap("last", "1", "app=web"))
			want = append(want, "web added "+ns+"/last", "meta added "+ns+"/last", "ids added "+ns+"/last")
			events := r.expect(t, want...)
			exactly(t, summary(events), want)
			for _, e := range events {
				if strings.HasPrefix(e.Route, "secrets") && strings.Contains(string(e.Data), "Y2FuYXJ5") {
					t.Errorf("%s has data of a Secret", e)
				}
			}
			if code := r.stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			// Nothing changed: nothing comes.
			r = startFile(t, k.file)
			r.ready(t)
			use(t, s, configMaps, ns).create(configMap("mark", "1", "app=db"))
			exactly(t, summary(r.expect(t, "meta added "+ns+"/mark", "ids added "+ns+"/mark")),
				[]string{"meta added " + ns + "/mark", "ids added " + ns + "/mark"})
		})
	}
}

type kinds struct {
	t                   *testing.T
	s                   *sandboxtest.Sandbox
	ns, other, file     string
	maps, away, secrets objects
}

func (k *kinds) fill() {
	k.maps, k.away = use(k.t, k.s, configMaps, k.ns), use(k.t, k.s, configMaps, k.other)
	k.secrets = use(k.t, k.s, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, k.ns)
	for _, name := range []string{"same", "gone", "changed", "left"} {
		k.maps.create(configMap(name, "1", "app=web"))
		k.away.create(configMap(name, "1", "app=web"))
		secret := configMap(name, "Y2FuYXJ5")
		secret.SetKind("Secret")
		k.secrets.create(secret)
	}
	k.maps.create(configMap("joins", "1", "app=db"))
}

func (k *kinds) install() string {
	k.file = install(k.t, k.s.Kubeconfig(), fmt.Sprintf(`
sources:
  web: {resource: v1/configmaps, namespaces: [%[1]s, %[2]s], labelSelector: app=web}
  meta: {resource: v1/configmaps, namespaces: %[1]s, cache: metadata}
  ids: {resource: v1/configmaps, namespaces: %[1]s, cache: identity}
  secrets: {resource: v1/secrets, namespaces: %[1]s}
sinks: {out: {stdout: {}}}
routes:
  - {name: web, from: web, on: [added, updated, deleted, deselected], to: out}
  - {name: meta, from: meta, to: out}
  - {name: ids, from: ids, to: out}
  - {name: secrets, from: secrets, to: out}
`, k.ns, k.other))
	return k.file
}

// change does to the objects what their names say, and returns what is to be delivered of it.
func (k *kinds) change() (want []string) {
	for _, m := range []objects{k.maps, k.away, k.secrets} {
		m.remove("gone")
		m.patch("changed", `{"metadata":{"annotations":{"changed":"yes"}}}`)
	}
	for _, m := range []objects{k.maps, k.away} {
		m.patch("left", `{"metadata":{"labels":{"app":"db"}}}`)
	}
	k.maps.patch("joins", `{"metadata":{"labels":{"app":"web"}}}`)
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

// TestAnotherCluster: the kubeconfig leads to another cluster than before. What differs is delivered: what the other does not have is
// gone, what it has is new.
func TestAnotherCluster(t *testing.T) {
	one, two := sandboxtest.New(t, sandboxtest.Options{}), sandboxtest.New(t, sandboxtest.Options{})
	ns := one.Namespace(t)
	two.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n---\n")
	for _, s := range []*sandboxtest.Sandbox{one, two} {
		maps := use(t, s, configMaps, ns)
		maps.create(configMap("both", "1"))
		maps.create(configMap("noise", "1"))
	}
	use(t, one, configMaps, ns).create(configMap("one", "1"))
	use(t, two, configMaps, ns).create(configMap("two", "1"))
	spend(t, use(t, two, configMaps, ns), "noise", 200) // its resourceVersions are higher
	file := install(t, one.Kubeconfig(), fmt.Sprintf(keepConfigMaps, ns))
	r := startFile(t, file)
	r.expect(t, "all added "+ns+"/both", "all added "+ns+"/one")
	r.ready(t)
	r.stop(t)

	config, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(config), one.Kubeconfig(), two.Kubeconfig())), 0o600); err != nil {
		t.Fatal(err)
	}
	r = startFile(t, file)
	want := []string{"all deleted " + ns + "/both", "all added " + ns + "/both", "all deleted " + ns + "/one", "all added " + ns + "/two"}
	exactly(t, summary(r.expect(t, want...)), want)
	r.ready(t)
	r.stop(t)
	r = startFile(t, file)
	r.ready(t)
	use(t, two, configMaps, ns).create(configMap("last", "1"))
	if events := r.expect(t, "all added "+ns+"/last"); len(events) != 1 {
		t.Errorf("after that: %q", summary(events))
	}
}
