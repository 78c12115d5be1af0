// Package plugintest is a test suite for the contract that all kinds of handlers and sinks keep.
// The package of each kind runs it, and tests its further behaviour itself:
//
//	func TestContract(t *testing.T) { plugintest.RunSink(t, plugintest.Sink{Kind: mysink.Kind()}) }
package plugintest

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// soon limits the duration of a call after its context is done.
const soon = time.Minute

// Node parses the YAML below the key of a kind.
func Node(t testing.TB, yaml string) config.Node {
	t.Helper()
	node, problems := config.ParseNode("test.yaml", []byte(yaml))
	if err := problems.Err(); err != nil {
		t.Fatalf("the YAML of the test: %v", err)
	}
	return node
}

// checkKind tests the common contract of handlers and sinks.
func checkKind[T, E any](t *testing.T, k plugins.Kind[T, E]) {
	about := k.Describe()
	t.Run("kind", func(t *testing.T) {
		if !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(about.Name) {
			t.Errorf("the kind %q is no lower-case name", about.Name)
		}
	})
	t.Run("the example is valid", func(t *testing.T) {
		if problems := k.Check(Node(t, about.Example)); problems != nil {
			t.Errorf("Check(Example): %v", problems)
		}
	})
	t.Run("it is described", func(t *testing.T) {
		if !strings.HasSuffix(about.Doc, ".") {
			t.Errorf("Doc is no sentence: %q", about.Doc)
		}
		if of := reflect.TypeOf(about.Config); of == nil || of.Kind() != reflect.Struct {
			t.Errorf("Config is no struct: %T", about.Config)
		}
	})
	t.Run("an unknown key is a problem with its place", func(t *testing.T) {
		for _, p := range k.Check(Node(t, "{noSuchKey: 1}")) {
			if p.Path == "noSuchKey" && p.Line == 1 && p.Column == 2 {
				return
			}
		}
		t.Error("Check accepts {noSuchKey: 1}, or does not say where it is")
	})
	t.Run("what is no mapping is a problem", func(t *testing.T) {
		if k.Check(Node(t, "[1, 2]")) == nil {
			t.Error("Check accepts a list")
		}
	})
}

// leakless fails the test if goroutines outlive it.
func leakless(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
}

// within fails the test if f takes longer than soon.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("%s takes longer than %v", what, soon)
	}
}

// cancelled returns a context that is done.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Object parses the JSON of an object. Its resource is pods.
func Object(t testing.TB, json string) *event.Object {
	t.Helper()
	pods := &event.Resource{Cluster: "test", Kind: "Pod"}
	pods.Version, pods.Resource = "v1", "pods"
	o, err := event.ParseObject(pods, json)
	if err != nil {
		t.Fatalf("the object of the test: %v", err)
	}
	return o
}

// Pod returns a pod of the namespace default, whose JSON has about size bytes.
func Pod(t testing.TB, name string, version, size int) *event.Object {
	t.Helper()
	return Object(t, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":"uid-%s","resourceVersion":"%d"},"x":"%s"}`,
		name, name, version, strings.Repeat("x", size)))
}

// Deltas returns one delta of each op, each of a pod of its own, with and without flags.
func Deltas(t testing.TB) []*event.Delta {
	t.Helper()
	seen := time.Date(2026, 1, 2, 15, 4, 5, 678, time.UTC)
	pod := func(name string, version int) *event.Object { return Pod(t, name, version, 100) }
	return []*event.Delta{
		{Source: "pods", Op: event.Added, New: pod("a", 1), Initial: true, Seen: seen},
		{Source: "pods", Op: event.Updated, Old: pod("b", 1), New: pod("b", 2), Seen: seen},
		{Source: "pods", Op: event.Updated, New: pod("c", 2), Redelivered: true, Seen: seen},
		{Source: "pods", Op: event.Deleted, Old: pod("d", 3), Stale: true, Seen: seen},
		{Source: "pods", Op: event.Deselected, Old: pod("e", 4), Seen: seen},
		{Source: "pods", Op: event.Sync, New: pod("f", 5), Seen: seen},
		{Source: "nodes", Op: event.Added, New: Object(t, `{"metadata":{"name":"n1","uid":"n1","resourceVersion":"7"}}`), Seen: seen},
	}
}

// Events returns an event for each of [Deltas].
func Events(t testing.TB) []event.Event {
	t.Helper()
	deltas := Deltas(t)
	events := make([]event.Event, len(deltas))
	for i, d := range deltas {
		events[i] = event.New(d, "route", 0, event.Payload(d))
	}
	return events
}
