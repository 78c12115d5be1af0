package process_test

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// fieldDeltas returns deltas whose objects have more fields than a handler declares.
func fieldDeltas(t *testing.T) []*event.Delta {
	object := func(version, more string) *event.Object {
		return plugintest.Object(t, fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"objects","namespace":"n","resourceVersion":%q,"labels":{"a":"b"}},"spec":{"x":1}%s}`, version, more))
	}
	return []*event.Delta{
		{Source: "pods", Op: event.Updated, Old: object("1", ""), New: object("2", `,"status":{"phase":"Running","podIP":"1"}`)},
		{Source: "pods", Op: event.Deleted, Old: object("3", `,"status":{"podIP":"1"}`)},
		{Source: "secrets", Op: event.Added, New: object("4", `,"status":null,"data":{"password":"djE="}`)},
	}
}

// selected returns the objects of fieldDeltas with the field status.phase only.
func selected() []string {
	object := func(version, more string) string {
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"objects","namespace":"n","resourceVersion":%q}%s}`, version, more)
	}
	return []string{
		"[" + object("2", `,"status":{"phase":"Running"}`) + "," + object("1", "") + "]",
		"[" + object("3", `,"status":{}`) + "," + object("3", `,"status":{}`) + "]",
		"[" + object("4", `,"status":null`) + ",null]",
	}
}

// TestFields: a plugin gets the declared fields and those of the identity, of each object.
func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	b := newBench(t)
	h := b.open("fields: [status.phase]")
	defer b.close()
	results, err := h.Handle(t.Context(), fieldDeltas(t))
	must.Succeed(t, err)
	for i, want := range selected() {
		if r := results[i]; len(r.Events) != 1 || string(r.Events[0].Data) != want {
			t.Errorf("%d: got %v\nwant %s", i, r, want)
		}
	}
}
