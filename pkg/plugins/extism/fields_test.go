package extism_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// fieldDeltas returns deltas whose objects have more fields than a handler declares.
func fieldDeltas(t *testing.T) []*event.Delta {
	object := func(version, more string) *event.Object {
		return plugintest.Object(t, fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"echo","namespace":"n","resourceVersion":%q,"labels":{"a":"b"}},"spec":{"x":1}%s}`, version, more))
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
		return fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"echo","namespace":"n","resourceVersion":%q}%s}`, version, more)
	}
	return []string{
		"[" + object("2", `,"status":{"phase":"Running"}`) + "," + object("1", "") + "]",
		"[" + object("3", `,"status":{}`) + ",null]",
		"[" + object("4", `,"status":null`) + ",null]",
	}
}

// TestFields: a function gets the declared fields and those of the identity, of each object.
func TestFields(t *testing.T) {
	// Guarantee: handler-fields
	results, err := newHost(t).open(t, "fields: [status.phase]").Handle(t.Context(), fieldDeltas(t))
	must.Succeed(t, err)
	for i, want := range selected() {
		_, objects, _ := strings.Cut(describe(results[i]), `,"object":`)
		object, old, both := strings.Cut(strings.TrimSuffix(objects, "}"), `,"oldObject":`)
		if !both {
			old = "null"
		}
		if got := "[" + object + "," + old + "]"; got != want {
			t.Errorf("%d: got %s\nwant %s", i, got, want)
		}
	}
}
