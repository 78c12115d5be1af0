// Package handlertest has the tests that several kinds of handlers share, beyond the contract in
// package plugintest.
package handlertest

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

// Fields tests that a handler with fields: [status.phase] gets this field and those of the
// identity, of each object. The objects have the given name. The handler answers each delta with
// one event, whose data is the JSON [object, oldObject]. Of a deleted object the second may be
// null.
func Fields(t *testing.T, h plugins.Handler, name string) {
	t.Helper()
	object := func(version, more string) string {
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":%q,"namespace":"n","resourceVersion":%q%s}`, name, version, more)
	}
	whole := func(version, more string) *event.Object {
		return plugintest.Object(t, object(version, `,"labels":{"a":"b"}},"spec":{"x":1}`+more))
	}
	selected := func(version, more string) string { return object(version, "}"+more) }
	results, err := h.Handle(t.Context(), []*event.Delta{
		{Source: "pods", Op: event.Updated, Old: whole("1", ""), New: whole("2", `,"status":{"phase":"Running","podIP":"1"}`)},
		{Source: "pods", Op: event.Deleted, Old: whole("3", `,"status":{"podIP":"1"}`)},
		{Source: "secrets", Op: event.Added, New: whole("4", `,"status":null,"data":{"password":"djE="}`)},
	})
	if err != nil || len(results) != 3 {
		t.Fatalf("%d results of 3 deltas (%v)", len(results), err)
	}
	last := selected("3", `,"status":{}`)
	for i, want := range [][]string{
		{"[" + selected("2", `,"status":{"phase":"Running"}`) + "," + selected("1", "") + "]"},
		{"[" + last + ",null]", "[" + last + "," + last + "]"},
		{"[" + selected("4", `,"status":null`) + ",null]"},
	} {
		r := results[i]
		if r.Verdict != plugins.OK || len(r.Events) != 1 {
			t.Errorf("%d: %v", i, r)
			continue
		}
		if got := string(r.Events[0].Data); got != want[0] && got != want[len(want)-1] {
			t.Errorf("%d: got %s\nwant %s", i, got, want[0])
		}
	}
}
