package emit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func handler(t *testing.T, text string) plugins.Handler {
	t.Helper()
	return emit.New(compile(t, text), nil, false)
}

func compile(t *testing.T, text string) *cel.Program {
	t.Helper()
	env, err := cel.NewEnv(cel.EnvConfig{Cluster: "test", Sources: map[string][]string{"pods": nil}})
	must.Succeed(t, err)
	program, err := env.Compile(text, cel.Emit, "pods")
	must.Succeed(t, err)
	return program
}

func TestEmit(t *testing.T) {
	pod := plugintest.Pod(t, "web-0", 7, 10)
	batch := []*event.Delta{{Source: "pods", Op: event.Added, New: pod}}
	tests := []struct {
		name, expr string
		want       []string // data of the events
		fails      string   // part of the error
	}{
		{"a map", `{"op": op, "pod": object.metadata.name}`, []string{`{"op":"added","pod":"web-0"}`}, ""},
		{"a list", `[{"a": 1}, {"b": 2.5}]`, []string{`{"a":1}`, `{"b":2.5}`}, ""},
		{"nothing", `op == "deleted" ? [{"a": 1}] : []`, nil, ""},
		{"an absent field", `{"a": object.spec.nodeName}`, nil, "emit: 1:18: no such key"},
		{"a type error", `{"a": object.metadata.name + 1}`, nil, "emit: 1:28: no such overload"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := handler(t, tt.expr)
			plugintest.CheckHandled(t, h, batch)
			results, err := h.Handle(t.Context(), batch)
			must.Succeed(t, err)
			r := results[0]
			if tt.fails != "" {
				if r.Verdict != plugins.Fail || plugins.ClassOf(r.Err) != plugins.Rejected || !strings.Contains(r.Err.Error(), tt.fails) {
					t.Errorf("got %v, want a rejection with %q", r, tt.fails)
				}
				return
			}
			var got []string
			for _, e := range r.Events {
				got = append(got, string(e.Data))
			}
			if r.Verdict != plugins.OK || strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got %s %q, want %q", r.Verdict, got, tt.want)
			}
		})
	}
}

// TestTypesAndSubjects shows that each event of a list may have its own type and subject.
func TestTypesAndSubjects(t *testing.T) {
	h := handler(t, `[event({"a": 1}).withType("pager." + op).withSubject(object.metadata.name), {"b": 2}]`)
	results, err := h.Handle(t.Context(), []*event.Delta{{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "web-0", 7, 10)}})
	must.Succeed(t, err)
	got := results[0].Events
	if len(got) != 2 || got[0].Type != "pager.added" || got[0].Subject != "web-0" || got[1].Type != "" || got[1].Subject != "" {
		t.Errorf("got %+v", got)
	}
}

// TestGroup shows that the last delta of a group gets the events of all its objects, and that a
// failure concerns the whole group.
func TestGroup(t *testing.T) {
	// Guarantee: groups
	batch := []*event.Delta{
		{Source: "pods", Op: event.Added, New: plugintest.Pod(t, "web-0", 7, 10)},
		{Source: "pods", Op: event.Deleted, Old: plugintest.Pod(t, "web-1", 8, 10)},
	}
	for text, want := range map[string]string{
		`{"op": op, "pods": objects.map(o, o.metadata.name), "last": object.metadata.name}`: `{"last":"web-1","op":"deleted","pods":["web-0","web-1"]}`,
		`size(objects) > 2 ? [{"n": size(objects)}] : []`:                                   "",
		`{"a": object.spec.nodeName}`:                                                       "rejected",
	} {
		results, err := emit.New(compile(t, text), nil, true).Handle(t.Context(), batch)
		if err != nil || len(results) != 2 || len(results[0].Events) != 0 || results[0].Verdict != plugins.OK {
			t.Fatalf("%s: %v %v", text, results, err)
		}
		got := ""
		if last := results[1]; plugins.ClassOf(last.Err) == plugins.Rejected {
			got = "rejected"
		} else if len(last.Events) > 0 {
			got = string(last.Events[0].Data)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestOthersGoOn shows that the failure of one delta does not concern the others.
func TestOthersGoOn(t *testing.T) {
	results, err := handler(t, `{"old": oldObject.metadata.name}`).Handle(t.Context(), plugintest.Deltas(t)[:2])
	must.Succeed(t, err)
	if results[0].Verdict != plugins.Fail || results[1].Verdict != plugins.OK {
		t.Errorf("got %v", results)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := handler(t, `{"a": 1}`)
	if _, err := h.Handle(ctx, plugintest.Deltas(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v: a delta must not be rejected because the router stops", err)
	}
	must.Report(t, h.Close(t.Context()))
}

func TestMain(m *testing.M) { leaks.Main(m) }
