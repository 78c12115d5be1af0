package kubernetes_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// ofRoute returns an event of a route.
func (c *cluster) ofRoute(route, resource, name, data string) event.Event {
	c.t.Helper()
	e := c.eventOf(resource, c.get(resource, name), data)
	e.Route, e.ID = route, route+data
	return e
}

// managersOf returns the field managers of an object, as in Apply NAME.
func (c *cluster) managersOf(resource, name string) (all []string) {
	c.t.Helper()
	for _, f := range c.get(resource, name).GetManagedFields() {
		if f.Manager != "sandboxtest" {
			all = append(all, string(f.Operation)+" "+f.Manager)
		}
	}
	slices.Sort(all)
	return all
}

// formerly sends a patch as a former version did, with one field manager for all routes.
func (c *cluster) formerly(resource, name string, kind types.PatchType, patch string, subresources ...string) {
	c.t.Helper()
	client := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(c.ns)
	_, err := client.Patch(c.t.Context(), name, kind, []byte(patch), metav1.PatchOptions{FieldManager: "deltarouter"}, subresources...)
	must.Succeed(c.t, err)
}

// TestRoutesOwnTheirFields: an apply of a route does not remove the fields that another one
// applied, and removes those that it applied before and does not apply now.
func TestRoutesOwnTheirFields(t *testing.T) {
	// Guarantee: kubernetes-managers
	k := start(t)
	k.configMap("a")
	one, other := k.open(all), k.open(all)
	long := strings.Repeat("r", 63) + "." + strings.Repeat("s", 63)
	for _, route := range []string{"r1", "r2", long, long + "t"} {
		field := "f" + route[len(route)-1:]
		must.Succeed(t, write(t, one, k.ofRoute(route, "v1/configmaps", "a", `{"apply":{"data":{"`+field+`":"`+route[:2]+`"}}}`)))
	}
	must.Succeed(t, write(t, other, k.ofRoute("r3", "v1/configmaps", "a", `{"apply":{"data":{"x":"r3"}}}`)))
	must.Succeed(t, write(t, one, k.ofRoute("r1", "v1/configmaps", "a", `{"apply":{"data":{"y":"r1"}}}`)))
	if got := field(k.get("v1/configmaps", "a"), "data"); got != `{"f2":"r2","fs":"rr","ft":"rr","k":"v","x":"r3","y":"r1"}` {
		t.Errorf("got %s", got)
	}
	for _, manager := range k.managersOf("v1/configmaps", "a") {
		if name, ok := strings.CutPrefix(manager, "Apply deltarouter:r"); !ok || len(name) > 128-len("deltarouter:r") {
			t.Errorf("manager %s", manager)
		}
	}
	if err := write(t, one, k.ofRoute("r2", "v1/configmaps", "a", `{"apply":{"data":{"x":"r2"}}}`)); kindOf(err) != "rejected" ||
		!strings.Contains(err.Error(), `.data.x (conflict with "deltarouter:r3")`) {
		t.Errorf("%s: %v", kindOf(err), err)
	}
}

// TestFieldsOfFormerVersions: a route adopts the fields that a former version applied, also if it
// changes their values: it removes those that it does not apply any more. What the former version
// patched stays.
func TestFieldsOfFormerVersions(t *testing.T) {
	for name, c := range map[string]struct{ data, want string }{
		"the same value": {`{"apply":{"data":{"x":"1"}}}`, `{"k":"v","p":"patched","x":"1"}`},
		"another value":  {`{"apply":{"data":{"x":"2"}}}`, `{"k":"v","p":"patched","x":"2"}`},
		"other fields":   {`{"apply":{"data":{"z":"3"}}}`, `{"k":"v","p":"patched","z":"3"}`},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			k.configMap("a")
			k.formerly("v1/configmaps", "a", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"1"}}`)
			k.formerly("v1/configmaps", "a", types.MergePatchType, `{"data":{"p":"patched"}}`)
			sink := k.open(all)
			for range 2 {
				must.Succeed(t, write(t, sink, k.ofRoute("r", "v1/configmaps", "a", c.data)))
			}
			if got := field(k.get("v1/configmaps", "a"), "data"); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := k.managersOf("v1/configmaps", "a"); !slices.Equal(got, []string{"Apply deltarouter:r", "Update deltarouter"}) {
				t.Errorf("managers: %q", got)
			}
			if n := k.sent.Load(); n > 4 {
				t.Errorf("%d writes", n)
			}
		})
	}
}

// TestConflictBesideFormerVersions: the fields of other managers are no route's, and neither are
// those that a former version patched.
func TestConflictBesideFormerVersions(t *testing.T) {
	k := start(t)
	k.configMap("a")
	k.formerly("v1/configmaps", "a", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}`)
	k.formerly("v1/configmaps", "a", types.MergePatchType, `{"data":{"p":"patched"}}`)
	sink := k.open(all)
	for _, data := range []string{`{"apply":{"data":{"x":"2","k":"mine"}}}`, `{"apply":{"data":{"x":"2","p":"mine"}}}`} {
		if err := write(t, sink, k.ofRoute("r", "v1/configmaps", "a", data)); kindOf(err) != "rejected" || !strings.Contains(err.Error(), "409 Conflict") {
			t.Errorf("%s: %s: %v", data, kindOf(err), err)
		}
	}
	if got := field(k.get("v1/configmaps", "a"), "data"); got != `{"k":"v","p":"patched","x":"1"}` {
		t.Errorf("got %s", got)
	}
}

// TestStatusOfFormerVersions is TestFieldsOfFormerVersions for a subresource.
func TestStatusOfFormerVersions(t *testing.T) {
	k := start(t)
	k.apply(pod)
	k.formerly("v1/pods", "web-0", types.ApplyPatchType,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0"},"status":{"message":"m","reason":"r"}}`, "status")
	must.Succeed(t, write(t, k.open(all), k.ofRoute("r", "v1/pods", "web-0", `{"apply":{"status":{"message":"n"}},"subresource":"status"}`)))
	o := k.get("v1/pods", "web-0")
	if field(o, "status", "message") != `"n"` || field(o, "status", "reason") != "null" {
		t.Errorf("got %s", field(o, "status"))
	}
	if got := k.managersOf("v1/pods", "web-0"); !slices.Contains(got, "Apply deltarouter:r") || slices.Contains(got, "Apply deltarouter") {
		t.Errorf("managers: %q", got)
	}
}
