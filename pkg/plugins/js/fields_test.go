package js_test

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
		return plugintest.Object(t, fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"web","namespace":"n","resourceVersion":%q,"labels":{"a":"b"}},"spec":{"x":1}%s}`, version, more))
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
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"web","namespace":"n","resourceVersion":%q}%s}`, version, more)
	}
	return []string{
		"[" + object("2", `,"status":{"phase":"Running"}`) + "," + object("1", "") + "]",
		"[" + object("3", `,"status":{}`) + ",null]",
		"[" + object("4", `,"status":null`) + ",null]",
	}
}

// TestFields: a handler gets the declared fields and those of the identity, of each object.
func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	h := newHost().open(t, source("return [{data: [delta.object, delta.oldObject ?? null]}]", "fields: [status.phase]\n"))
	results, err := h.Handle(t.Context(), fieldDeltas(t))
	must.Succeed(t, err)
	for i, want := range selected() {
		if got := describe(results[i]); got != "ok /="+want {
			t.Errorf("%d: got %s\nwant %s", i, got, want)
		}
	}
}
