package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// secretOf returns a Secret with a value.
func secretOf(t testing.TB, name string, version int, value string) *event.Object {
	t.Helper()
	r := &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Cluster: "test", Kind: "Secret"}
	o, err := event.ParseObject(r, fmt.Sprintf(`{"metadata":{"namespace":"default","name":%[1]q,"uid":"uid-%[1]s","resourceVersion":"%[2]d"},"data":{"k":%[3]q}}`, name, version, value))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// saved returns a Secret as it is restored.
func saved(t testing.TB, o *event.Object) *event.Object {
	t.Helper()
	key := fingerprint.NewKey([]byte("key"))
	identity, err := event.ParseObject(o.Resource(), fmt.Sprintf(`{"metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":%q}}`, o.Key().Name, o.UID(), o.ResourceVersion()))
	if err != nil {
		t.Fatal(err)
	}
	return identity.AsBare(key.PastOf(key.ID(), o.UID(), key.Of(o.UID(), o.Raw())))
}

func data(o *event.Object) string { return o.Raw().Get("data").Get("k").Str() }

// TestRestoredSecrets: a restored delta of a Secret waits until the cache has the whole object. Its
// filter and key see whole states then, no delta shows a later state than the next one, and the
// event keeps the identity of the delta. A full route does not make the source wait meanwhile.
func TestRestoredSecrets(t *testing.T) {
	// Guarantee: secrets-known-changes
	for _, handler := range []bool{true, false} {
		t.Run(fmt.Sprint("handler ", handler), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restoredSecrets(t, handler) })
		})
	}
}

func restoredSecrets(t *testing.T, handler bool) {
	one, two, three, four := secretOf(t, "a", 1, "one"), secretOf(t, "a", 2, "two"), secretOf(t, "a", 3, "three"), secretOf(t, "a", 4, "four")
	gone := secretOf(t, "gone", 5, "gone")
	cached := map[string]*event.Object{"a": saved(t, two)}
	var seen []string
	note := func(what string, d *event.Delta) {
		text := what + " "
		if d.Old != nil {
			text += data(d.Old)
		}
		seen = append(seen, text+"->"+data(d.New))
	}
	s, whole := &recordingSink{}, make(chan struct{})
	r := spec.Settings{
		Sinks: to(s), Overflow: spec.Block, Capacity: 1,
		Cached: spec.Cached{Object: func(d *event.Delta) *event.Object { return cached[d.Key().Name] }, Whole: whole},
		Key:    func(_ context.Context, d *event.Delta) (string, error) { note("key", d); return data(d.New), nil },
		Filter: filters.Func(func(_ context.Context, d *event.Delta) (bool, error) {
			note("filter", d)
			return true, nil
		}),
	}
	if handler {
		r.Handler = handleEach(func(d *event.Delta) plugins.Result {
			note("handler", d)
			return plugins.Result{Events: []plugins.Emit{{Data: event.Payload(d)}}}
		})
	}
	b := restart(t, r,
		checkpoint.Pending{ID: 1, Delta: &event.Delta{Source: "pods", Op: event.Updated, Old: saved(t, one), New: saved(t, two)}},
		checkpoint.Pending{ID: 2, Delta: &event.Delta{Source: "pods", Op: event.Updated, Old: saved(t, gone), New: saved(t, gone)}, Closed: []string{""}})
	synctest.Wait()
	if status := b.Status()[0]; !status.Waiting || len(seen) > 0 {
		t.Errorf("it does not wait: %+v, %q", status, seen)
	}
	if err := b.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	live := []*event.Delta{
		{Source: "pods", Op: event.Updated, Old: saved(t, two).Recalled(three), New: three}, {Source: "pods", Op: event.Updated, Old: three, New: four},
	}
	transit.Of(live[0]).Listed = true
	seen = nil
	b.admit(live[0]) // the list that completes the cache; it would wait for room otherwise
	cached["a"] = four
	close(whole)
	synctest.Wait()
	b.admit(live[1])
	b.drain()
	equal(t, "sink", s.got(), "updated a@2", "updated gone@5", "updated a@3", "updated a@4")
	if s.events[0].ID != event.New(&event.Delta{Source: "pods", Op: event.Updated, Old: one, New: two}, "route0", 0, nil).ID {
		t.Errorf("another ID: %+v", s.events[0])
	}
	const unknown = "KHVua25vd24p"
	want := []string{
		"filter " + unknown + "->three", "key " + unknown + "->three", // of the list, which is evaluated again
		"key " + unknown + "->three", "filter ->", "key ->", "filter " + unknown + "->three", "key " + unknown + "->three",
		"handler " + unknown + "->three", "handler " + unknown + "->three", "handler ->",
		"filter three->four", "key three->four", "handler three->four",
	}
	if !handler {
		want = slices.DeleteFunc(want, func(text string) bool { return strings.HasPrefix(text, "handler") })
	}
	equal(t, "the states", seen, want...)
}
