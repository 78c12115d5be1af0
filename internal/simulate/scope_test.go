package simulate_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// looker is a handler that puts all objects that its look-ups see into its events.
type looker struct{ see plugins.Lookup }

func (l looker) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i := range results {
		var found []string
		for _, source := range []string{"pods", "nodes", "spaces"} {
			for _, query := range [][2]string{{"", ""}, {"name", "x"}, {"namespace", "other"}} {
				for _, o := range l.see.Lookup(source, query[0], query[1]) {
					found = append(found, string(o.JSON()))
				}
				if n := l.see.Count(source, query[0], query[1]); n != len(l.see.Lookup(source, query[0], query[1])) {
					found = append(found, "canary: counted more than found")
				}
			}
			for _, namespace := range []string{"other", ""} {
				if o := l.see.Get(source, namespace, "x"); o != nil {
					found = append(found, string(o.JSON()))
				}
			}
		}
		results[i].Events = []plugins.Emit{{Data: fmt.Appendf(nil, "%q", strings.Join(found, " "))}}
	}
	return results, nil
}
func (looker) Close(context.Context) error { return nil }

// lookers is a kind of handlers with a grant of all sources.
type lookers struct{ fakekind.Handler }

func (lookers) Lookups(node config.Node) (grants []plugins.LookupGrant) {
	for _, source := range []string{"pods", "nodes", "spaces"} {
		grants = append(grants, plugins.LookupGrant{Source: source, Node: node})
	}
	return grants
}

func scopeComponents() compile.Components {
	return compile.Components{
		Sinks: []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("fake")}},
		Handlers: []plugins.HandlerKind{lookers{fakekind.Handler{
			Definition: fakekind.Define("fake"),
			OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
				return looker{env.Lookup}, nil
			},
		}}},
		Emit: emit.New,
	}
}

const scopeConfig = `version: 1
sources:
  pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}
  nodes: {resource: v1/nodes}
  spaces: {resource: v1/namespaces}
handlers: {h: {fake: {}}}
sinks: {out: {fake: {}}}
include: [{name: shop, files: shop.yaml, namespaces: [shop], sources: [pods, nodes, spaces], sinks: out, handlers: h}]
routes:
  - {name: whole, from: [pods, nodes, spaces], to: out}
`

// scopeRoutes use every key with an expression. Each expression fails on an object with the note
// canary, which all objects outside of the scope have.
const scopeRoutes = `define:
  note: int(object.metadata.annotations["note"])
routes:
  - {name: plain, from: [pods, nodes, spaces], to: out}
  - {name: filtered, from: [pods, nodes, spaces], filter: note > 0, to: out, existing: deliver}
  - {name: equal, from: pods, filter: 'object.metadata.name == "x" && note > 0', to: out}
  - {name: keyed, from: pods, key: note, to: [{route: down}]}
  - {name: down, emit: '{"data": event.data}', to: out}
  - {name: limited, from: pods, limit: {key: note, every: 1m}, to: out}
  - {name: grouped, from: pods, batch: {by: note, wait: 1m}, emit: 'objects.map(o, {"name": o.metadata.annotations["note"]})', to: out}
  - {name: gone, from: pods, ops: deleted, for: 1m, key: note, to: out}
  - {name: holds, from: [pods, spaces], when: note > 1, for: 1m, every: 2m, reevaluate: 1m, limit: {key: note, every: 1m}, to: out}
  - {name: joins, from: pods, watches: {nodes: 'list("pods")', spaces: 'lookup("pods.namespace", object.metadata.name)'}, filter: note > 0, to: out}
  - {name: handled, from: pods, handler: h, to: out}
  - name: looks
    from: pods
    filter: 'list("pods").all(p, int(p.metadata.annotations["note"]) > 0) && list("nodes").size() == 0'
    emit: >-
      {"pods": list("pods"), "spaces": list("spaces"), "byNode": lookup("pods.byNode", "n"), "byName": lookup("pods.name", "x"),
      "there": lookup("pods.namespace", "other"), "count": count("pods.byNode", "n") == lookup("pods.byNode", "n").size() ? "" : "canary",
      "get": get("pods", "other", "x"), "node": get("nodes", "", "x"), "space": get("spaces", "", "other")}
    to: out
`

// shopObject returns an object. One outside of the namespace shop has the note canary.
func shopObject(resource, namespace, name string, version, note int) string {
	home, text := namespace, ""
	switch resource {
	case "v1/pods":
		text = fmt.Sprintf(`"namespace":%q,`, namespace)
	case "v1/namespaces":
		home = name
	default:
		home = ""
	}
	told := "canary"
	if home == "shop" {
		told = fmt.Sprint(note)
	}
	return fmt.Sprintf(`{"metadata":{%s"name":%q,"uid":"%s","resourceVersion":"%d","annotations":{"note":%q}},"spec":{"nodeName":"n"}}`,
		text, name, resource+namespace+name, version, told)
}

// TestScopeIsClosed: for any changes, the routes of an include see no object outside of its
// namespaces: neither in a delta, nor in an expression, nor in a look-up of an expression or a
// handler.
func TestScopeIsClosed(t *testing.T) {
	// Guarantee: include-scope
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(scopeConfig), 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(scopeRoutes), 0o600))
	offline, problems := simulate.NewOffline(t.Context(), file, "", scopeComponents(), "", slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	delivered := make(map[string]bool)
	rapid.Check(t, func(rt *rapid.T) {
		for _, o := range runScope(t, rt, offline) {
			text := o.Event.Subject + " " + string(o.Event.Data) + " " + o.Error
			outside := strings.Contains(text, "canary") || strings.Contains(text, "other") || o.Error != ""
			if outside && o.Route != "whole" {
				rt.Fatalf("route %s: %s", o.Route, text)
			}
			delivered[fmt.Sprint(o.Route, outside)] = true
		}
	})
	for _, route := range []string{"whole", "filtered", "equal", "down", "limited", "grouped", "gone", "holds", "joins", "handled", "looks"} {
		if !delivered["shop/"+route+"false"] && route != "whole" || route == "whole" && !delivered["wholetrue"] {
			t.Errorf("route %s delivered nothing", route)
		}
	}
}

// runScope makes some changes, and returns the outcomes of all routes.
func runScope(t *testing.T, rt *rapid.T, offline *simulate.Offline) (outcomes []simulate.Outcome) {
	t.Helper()
	kinds := map[string]string{"v1/pods": "Pod", "v1/nodes": "Node", "v1/namespaces": "Namespace"}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	trial, err := offline.Begin(t.Context(), simulate.Scene{Kinds: kinds, Start: now})
	must.Succeed(t, err)
	defer func() { must.Report(t, trial.Close(t.Context())) }()
	version := 1
	draw := func() (resource, namespace, name string) {
		resource = rapid.SampledFrom([]string{"v1/pods", "v1/pods", "v1/pods", "v1/nodes", "v1/namespaces"}).Draw(rt, "resource")
		if resource == "v1/pods" {
			return resource, rapid.SampledFrom([]string{"shop", "other", "shop-2"}).Draw(rt, "namespace"), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "name")
		}
		return resource, "", rapid.SampledFrom([]string{"shop", "other", "x"}).Draw(rt, "name")
	}
	present := map[[3]string]string{}
	lists := map[string][]string{}
	for resource := range kinds {
		for _, namespace := range []string{"shop", "other"} {
			name := "x"
			if resource != "v1/pods" {
				name, namespace = namespace, ""
			}
			text := shopObject(resource, namespace, name, version, 1)
			lists[resource] = append(lists[resource], text)
			present[[3]string{resource, namespace, name}] = text
		}
		slices.Sort(lists[resource])
	}
	must.Succeed(t, trial.List(t.Context(), lists, "1"))
	for range rapid.IntRange(1, 12).Draw(rt, "steps") {
		version++
		resource, namespace, name := draw()
		key := [3]string{resource, namespace, name}
		switch step := rapid.SampledFrom([]string{"put", "put", "put", "delete", "sync", "pass"}).Draw(rt, "step"); {
		case step == "put":
			present[key] = shopObject(resource, namespace, name, version, rapid.IntRange(1, 2).Draw(rt, "note"))
			must.Succeed(t, trial.Put(t.Context(), resource, present[key]))
		case step == "pass":
			now = now.Add(time.Minute)
			must.Succeed(t, trial.Pass(t.Context(), now))
		case present[key] == "":
		case step == "sync":
			must.Succeed(t, trial.Sync(t.Context(), resource, event.Key{Namespace: namespace, Name: name}))
		default:
			must.Succeed(t, trial.Delete(t.Context(), resource, strings.Replace(present[key], `"resourceVersion":"`, fmt.Sprintf(`"resourceVersion":"%d`, version), 1)))
			delete(present, key)
		}
	}
	must.Succeed(t, trial.Pass(t.Context(), now.Add(5*time.Minute)))
	return trial.Take()
}
