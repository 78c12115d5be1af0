package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// TestKeptFields runs a source with `cache: auto` through updates, a gap, a kill, and changes of
// the configuration that read other fields: while the router runs, and while it does not.
func TestKeptFields(t *testing.T) {
	// Guarantee: cache-auto, cache-auto-reload
	t.Parallel()
	s := sandboxtest.Borrow(t)
	ns := s.Namespace(t)
	m := routertest.Use(t, s, routertest.ConfigMaps, ns)
	const field = `{"data":{%q:%q}}`
	for _, name := range []string{"a", "b", "c"} {
		m.Make(routertest.ConfigMap(name, "1", "app="+name))
		m.Change(name, fmt.Sprintf(`{"data":{"other":"o-%s","third":"t-%[1]s"}}`, name))
	}
	file := routertest.InstallAPI(t, s.Kubeconfig(), "\n")
	base, err := os.ReadFile(file)
	must.Succeed(t, err)
	config := func(routes string) string {
		return string(base) + fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s, cache: auto, indexes: {byValue: object.data.value}}
sinks: {out: {stdout: {}}}
routes:
  - name: value
    from: maps
    emit: '{"now": object.data.value, "was": oldObject == null ? "" : oldObject.data.value}'
    to: out
`, ns) + routes
	}
	must.Succeed(t, os.WriteFile(file, []byte(config("")), 0o600))
	r := routertest.StartFile(t, file)
	r.Ready(t)
	seen := 0
	// want waits for events and compares them, with their data, in their order.
	want := func(want ...string) {
		t.Helper()
		r.Wait(t, strings.Join(want, ", "), func(events []routertest.Event) bool { return len(events) >= seen+len(want) })
		var got []string
		for _, e := range r.Events()[seen:] {
			var data struct{ Now, Was string }
			must.Succeed(t, json.Unmarshal(e.Data, &data))
			got = append(got, strings.TrimSuffix(fmt.Sprintf("%s %s %s", strings.ReplaceAll(e.String(), ns+"/", ""), data.Now, data.Was), " "))
		}
		seen = len(r.Events())
		routertest.Exactly(t, got, want)
	}
	restart := func(text string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		r, seen = routertest.StartFile(t, file), 0
	}
	shows := func(args string, code int, contains, lacks string) {
		t.Helper()
		out, got := routertest.Control(t, file, append([]string{"get"}, strings.Fields(args)...)...)
		if got != code || !strings.Contains(out, contains) || lacks != "" && strings.Contains(out, lacks) {
			t.Errorf("router get %s: exit code %d\n%s", args, got, out)
		}
	}

	shows("maps -o json", 0, `"value":"1"`, "o-a")
	shows("maps", 0, "the cache keeps only names, versions and these fields (cache: auto): metadata.creationTimestamp, data.value", "")
	shows("maps -l app=a", 1, `the query reads metadata.labels, which the cache of source "maps" does not keep (cache: auto)`, "")
	m.Change("a", fmt.Sprintf(field, "value", "2"))
	want("value updated a 2 1")
	m.Change("a", fmt.Sprintf(field, "other", "o-a2"))
	want("value updated a 2 2")

	// Killed, and a gap: the state before and the last state come from the disk.
	r.Saved(t)
	r.Kill(t)
	m.Change("a", fmt.Sprintf(field, "value", "3"))
	m.Remove("b")
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t) // a watch from before gets 410
	restart(config(""))
	want("value updated a 3 2", "value deleted b 1 1")
	out, code := routertest.Control(t, file, "resync", "-relist", "-source", "maps")
	if code != 0 || !strings.Contains(out, "2 objects listed, 0 deltas") {
		t.Errorf("relist: %d %s", code, out)
	}

	// A reload that reads more.
	const other = `
  - {name: other, from: maps, existing: deliver, emit: '{"now": object.data.other, "was": oldObject == null ? "" : oldObject.data.other}', to: out}
`
	r.Reload(t, file, config(other), true)
	want("other added a o-a2", "other added c o-c")
	m.Change("c", fmt.Sprintf(field, "other", "o-c2"))
	want("value updated c 1 1", "other updated c o-c2 o-c")
	shows("maps -o json", 0, `"other":"o-c2"`, "t-a")

	// A change of the configuration while the router is down, with changes of objects.
	const third = `
  - {name: third, from: maps, existing: deliver, emit: '{"now": object.data.third, "was": oldObject == null ? "" : oldObject.data.third}', to: out}
`
	if code := r.Stop(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	m.Change("c", fmt.Sprintf(field, "third", "t-c2"))
	m.Remove("a")
	restart(config(third))
	want("third added a t-a", "third added c t-c", "value updated c 1 1", "third updated c t-c2 t-c", "value deleted a 3 3", "third deleted a t-a t-a")
	r.WaitLog(t, "the completion", func(log string) bool { return strings.Contains(log, "the saved objects were completed") })
	shows("maps -o json", 0, `"third":"t-c2"`, "o-c2")
}
