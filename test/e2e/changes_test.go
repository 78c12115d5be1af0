package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const watchConfigMaps = `
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: all, from: maps, to: out}
`

func TestCreateUpdateDelete(t *testing.T) {
	// Guarantee: at-least-once, delete-and-recreate
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(watchConfigMaps, ns))
	r.Ready(t)

	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	first := maps.Make(routertest.ConfigMap("a", "1"))
	maps.Change("a", `{"data":{"value":"2"}}`)
	maps.Remove("a")
	second := maps.Make(routertest.ConfigMap("a", "3"))

	subject := ns + "/a"
	events := r.Expect(t, "all added "+subject, "all updated "+subject, "all deleted "+subject, "all added "+subject)
	want := []string{"all added " + subject, "all updated " + subject, "all deleted " + subject, "all added " + subject}
	if got := routertest.Of(events, subject); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var uids []string
	ids := make(map[string]bool)
	for _, e := range events {
		if e.Subject == subject {
			uids = append(uids, e.K8sUID)
			ids[e.ID] = true
		}
		if e.Source != "/clusters/test/sources/maps" {
			t.Errorf("source is %q", e.Source)
		}
	}
	u1, u2 := string(first.GetUID()), string(second.GetUID())
	if !slices.Equal(uids, []string{u1, u1, u1, u2}) {
		t.Errorf("uids are %q, want three times %s, then %s", uids, u1, u2)
	}
	if len(ids) != 4 {
		t.Errorf("%d different ids for 4 events", len(ids))
	}
	checkPayloads(t, routertest.About(events, subject))
	if code := r.Stop(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// checkPayloads checks the data of added, updated, deleted.
func checkPayloads(t *testing.T, events []routertest.Event) {
	t.Helper()
	type state struct{ Data struct{ Value string } }
	for i, want := range []struct{ op, now, before string }{{"added", "1", ""}, {"updated", "2", "1"}, {"deleted", "2", ""}, {"added", "3", ""}} {
		var payload struct {
			Op                string
			Object, OldObject *state
			Initial, Stale    bool
		}
		must.Succeed(t, json.Unmarshal(events[i].Data, &payload))
		before := ""
		if payload.OldObject != nil {
			before = payload.OldObject.Data.Value
		}
		if payload.Op != want.op || payload.Object == nil || payload.Object.Data.Value != want.now || before != want.before {
			t.Errorf("event %d is %s, want %v", i, events[i].Data, want)
		}
		if strings.Contains(string(events[i].Data), "managedFields") {
			t.Errorf("event %d has managedFields", i)
		}
	}
}

func TestStatusPatchReachesTheGuest(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, pod("web", "n1", "", 0))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  pods: {resource: v1/pods, namespaces: %s}
handlers:
  alert: {wasm: {module: %q, config: {threshold: 2}}}
routes:
  - {name: restarts, from: pods, ops: updated, filter: 'changed("status.containerStatuses")', handler: alert, to: out}
  - {name: labels, from: pods, ops: updated, filter: 'changed("metadata.labels")', to: out}
`, ns, routertest.Guest(t, "restart-alert")))
	r.Ready(t)

	web := routertest.Use(t, s, routertest.Pods, ns)
	for _, restarts := range []int{1, 2, 2, 3} { // below the threshold, at it, unchanged, above
		web.Change("web", fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"web","image":"i","imageID":"","ready":true,"restartCount":%d}]}}`, restarts), "status")
	}
	web.Change("web", `{"metadata":{"labels":{"done":"yes"}}}`)
	events := r.Expect(t, "labels updated "+ns+"/web")
	r.Wait(t, "the alert", func(events []routertest.Event) bool { return len(events) >= 3 })
	var counts []string
	for _, e := range r.Events() {
		if e.Route == "restarts" {
			counts = append(counts, string(e.Data))
		}
	}
	if len(counts) != 2 || !strings.Contains(counts[0], "2") || !strings.Contains(counts[1], "3") {
		t.Errorf("alerts are %q, want one for 2 and one for 3 restarts; all: %q", counts, routertest.Summary(events))
	}
}

// TestByUser uses client-go's classical index: pods by the comma-separated annotation users.
func TestByUser(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	s.Apply(t, ns, pod("one", "n1", "ernie,bert", 0)+pod("two", "n2", "bert,oscar", 0)+pod("three", "n1", "ernie,elmo", 0)+pod("four", "n1", "", 0))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  pods:
    resource: v1/pods
    namespaces: %[1]s
    indexes:
      byUser: object.metadata.annotations["users"].split(",")
      byNode: object.spec.nodeName
  maps: {resource: v1/configmaps, namespaces: %[1]s}
routes:
  - name: ask
    from: maps
    filter: has(object.data.value)
    emit: >-
      {"ernie": lookup("pods.byUser", object.data.value).map(p, p.metadata.name),
       "n1": count("pods.byNode", "n1"), "none": lookup("pods.byUser", "nobody"),
       "one": get("pods", %[1]q, "one").spec.nodeName, "all": list("pods").size()}
    to: out
`, ns))
	r.Ready(t)
	routertest.Use(t, s, routertest.ConfigMaps, ns).Make(routertest.ConfigMap("ask", "ernie"))
	events := r.Expect(t, "ask added "+ns+"/ask")
	var answer struct {
		Ernie   []string
		N1, All int
		None    []any
		One     string
	}
	must.Succeed(t, json.Unmarshal(routertest.About(events, ns+"/ask")[0].Data, &answer))
	slices.Sort(answer.Ernie)
	if !slices.Equal(answer.Ernie, []string{"one", "three"}) || answer.N1 != 3 || answer.All != 4 || len(answer.None) != 0 || answer.One != "n1" {
		t.Errorf("got %+v", answer)
	}
}

func TestDeselectedIsNotDeleted(t *testing.T) {
	// Guarantee: deleted-means-gone
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "1", "app=web"))
	maps.Make(routertest.ConfigMap("b", "1", "app=web"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s, labelSelector: app=web}
routes:
  - {name: all, from: maps, ops: [added, updated, deleted, deselected], to: out}
`, ns))
	r.Ready(t)
	maps.Change("a", `{"metadata":{"labels":{"app":"db"}}}`)
	maps.Remove("b")
	maps.Change("a", `{"metadata":{"labels":{"app":"web"}}}`)
	events := r.Expect(t, "all added "+ns+"/a", "all deleted "+ns+"/b")
	if got, want := routertest.Of(events, ns+"/a"), []string{"all deselected " + ns + "/a", "all added " + ns + "/a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := routertest.Of(events, ns+"/b"), []string{"all deleted " + ns + "/b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExisting(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("there", "1"))
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: skip, from: maps, filter: object.metadata.name != "kube-root-ca.crt", to: out}
  - {name: deliver, from: maps, filter: object.metadata.name != "kube-root-ca.crt", existing: deliver, to: out}
`, ns))
	r.Ready(t)
	maps.Make(routertest.ConfigMap("new", "1"))
	events := r.Expect(t, "skip added "+ns+"/new", "deliver added "+ns+"/new", "deliver added "+ns+"/there")
	if got := routertest.Of(events, ns+"/there"); len(got) != 1 || !strings.Contains(string(routertest.About(events, ns+"/there")[0].Data), `"initial":true`) {
		t.Errorf("got %q: %s", got, routertest.About(events, ns+"/there")[0].Data)
	}
}

func TestMetadataAndIdentity(t *testing.T) {
	t.Parallel()
	s, ns := sandboxtest.StartNamespace(t)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  meta: {resource: v1/configmaps, namespaces: %[1]s, cache: metadata}
  ids: {resource: v1/configmaps, namespaces: %[1]s, cache: identity}
routes:
  - {name: meta, from: meta, to: out}
  - {name: ids, from: ids, to: out}
`, ns))
	r.Ready(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	maps.Make(routertest.ConfigMap("a", "secret-canary"))
	maps.Change("a", `{"data":{"value":"second"}}`)
	events := r.Expect(t, "meta updated "+ns+"/a", "ids updated "+ns+"/a")
	for _, e := range routertest.About(events, ns+"/a") {
		hasData, hasOld := strings.Contains(string(e.Data), "value"), strings.Contains(string(e.Data), "oldObject")
		update := strings.HasSuffix(e.Type, "updated")
		switch {
		case e.Route == "meta" && (hasData || hasOld != update):
			t.Errorf("metadata only: %s", e.Data)
		case e.Route == "ids" && (!hasData || hasOld):
			t.Errorf("identity only: %s", e.Data)
		}
	}
}

func TestSecretsDataStaysOut(t *testing.T) {
	// Guarantee: secrets-redacted
	t.Parallel()
	const canary = "Y2FuYXJ5LWluLXRoZS1jb2FsLW1pbmU="
	s, ns := sandboxtest.StartNamespace(t)
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  cut: {resource: v1/secrets, namespaces: %[1]s}
  whole: {resource: v1/secrets, namespaces: %[1]s, secrets: true}
routes:
  - {name: cut, from: cut, to: out}
  - {name: whole, from: whole, to: out}
`, ns), "-log-level", "debug")
	r.Ready(t)
	s.Apply(t, ns, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: token
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: '{"data":{"t":"%[1]s"}}'
    kapp.k14s.io/original: '{"data":{"t":"%[1]s"}}'
data: {t: %[1]s}
---
`, canary))
	for _, e := range r.Expect(t, "cut added "+ns+"/token", "whole added "+ns+"/token") {
		if has := strings.Contains(string(e.Data), canary); has != (e.Route == "whole") {
			t.Errorf("route %s: data in the event: %v", e.Route, has)
		}
	}
	if strings.Contains(r.Log(), canary) {
		t.Error("the data of a Secret is in the log")
	}
}

func TestManyObjects(t *testing.T) {
	t.Parallel()
	n := effort.Rounds(500, 2000, 10_000)
	s, ns := sandboxtest.StartNamespace(t)
	maps := routertest.Use(t, s, routertest.ConfigMaps, ns)
	for i := range n {
		maps.Make(routertest.ConfigMap(fmt.Sprintf("m-%d", i), fmt.Sprintf(strings.Repeat("line %[1]d\n", 400), i)))
	}
	r := routertest.Start(t, s.Kubeconfig(), fmt.Sprintf(`
sources:
  maps: {resource: v1/configmaps, namespaces: %s}
routes:
  - {name: all, from: maps, existing: deliver, filter: object.metadata.name.startsWith("m-"), emit: '{"n": object.metadata.name}', to: out}
`, ns))
	r.Wait(t, "all objects", func(events []routertest.Event) bool { return len(events) >= n })
	seen := make(map[string]int)
	for _, e := range r.Events() {
		seen[e.Subject]++
	}
	if len(seen) != n {
		t.Errorf("%d different objects, want %d", len(seen), n)
	}
	// the caches are compressed soon after the first list, without a wait for objects at rest
	compressed := regexp.MustCompile(`caches are compressed","objects":(\d+),"bytes":(\d+)`)
	r.WaitLog(t, "compressed caches", compressed.MatchString)
	found := compressed.FindStringSubmatch(r.Log())
	if size, err := strconv.Atoi(found[2]); err != nil || found[1] != strconv.Itoa(n) || size > n*2000 {
		t.Errorf("%s; want %d objects of 4 KB, compressed to less than half", found[0], n)
	}
	must.Succeed(t, maps.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	r.Wait(t, "all deletes", func(events []routertest.Event) bool { return len(events) >= 2*n })
}
