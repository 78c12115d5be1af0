package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// recorder records the life of the components of a configuration, and the deliveries of their
// sinks.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) add(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// recordingComponent is a handler and a sink. A component named "broken" does not open.
type recordingComponent struct {
	name string
	r    *recorder
}

func (c *recordingComponent) Close(context.Context) error {
	c.r.add("close " + c.name)
	return nil
}

func (c *recordingComponent) Write(_ context.Context, events []event.Event) []error {
	for _, e := range events {
		c.r.add(c.name + " took " + e.Subject + " of " + e.Route)
	}
	return nil
}

func (c *recordingComponent) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		results[i].Events = []plugins.Emit{{Data: event.Payload(d)}}
	}
	return results, nil
}

func (r *recorder) open(name string) (*recordingComponent, error) {
	if name == "broken" {
		return nil, errors.New("does not open")
	}
	r.add("open " + name)
	return &recordingComponent{name, r}, nil
}

func (r *recorder) components() compile.Components {
	anything := func(config.Node) config.Problems { return nil }
	return compile.Components{
		Sinks: []plugins.SinkKind{fakekind.Sink{
			Definition: fakekind.Define("fake"), CheckFunc: anything,
			OpenFunc: func(_ context.Context, _ config.Node, env plugins.SinkEnv) (plugins.Sink, error) {
				return r.open(env.Name)
			},
		}},
		Handlers: []plugins.HandlerKind{fakekind.Handler{
			Definition: fakekind.Define("fake"), CheckFunc: anything,
			OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
				return r.open(env.Name)
			},
		}},
		Emit: emit.New,
	}
}

// env returns the dependencies that the sets of one test share.
func (r *recorder) env() *engine.Env {
	return &engine.Env{Components: r.components(), Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(), Clock: timer.Real()}
}

// plan compiles a configuration.
func plan(t *testing.T, env *engine.Env, text string) *compile.Plan {
	t.Helper()
	return planIn(t, env, t.TempDir(), text)
}

// planIn compiles a configuration in a folder.
func planIn(t *testing.T, env *engine.Env, dir, text string) *compile.Plan {
	t.Helper()
	path := filepath.Join(dir, "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") }
	p, problems := (&compile.Plans{}).Make(t.Context(), compile.Input{Path: path}, env.Components, alone)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

// open opens the engine of a configuration without an API server.
func open(t *testing.T, env *engine.Env, text string) *engine.Engine {
	t.Helper()
	e := engine.New(env, plan(t, env, text))
	must.Succeed(t, e.OpenSet(t.Context()))
	e.OpenFactory(nil)
	return e
}

const base = `version: 1
define:
  busy: object.spec.nodeName != ""
sources:
  pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}
  nodes: {resource: v1/nodes}
handlers:
  h: {fake: {setting: 1}}
sinks:
  a: {fake: {setting: 2}}
  b: {fake: {setting: 3}}
routes:
  - {name: plain, from: nodes, to: a}
  - {name: handled, from: pods, handler: h, to: b}
  - {name: crowded, from: nodes, filter: 'count("pods.byNode", object.metadata.name) > 3', to: b}
  - {name: upstream, from: nodes, emit: '[{"data": {}}]', to: [{route: downstream}]}
  - {name: downstream, to: a}
`

// TestWhatAReloadExchanges: a component is opened again if it, or its content, has changed; a route
// is replaced if it, or anything that it uses, has changed. All others continue.
func TestWhatAReloadExchanges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change []string // old and new, in pairs
		opened []string
		closed []string
		routes []string // routes with a new version
	}{
		"nothing":     {},
		"a comment":   {change: []string{"define:", "# what is used often\ndefine:"}},
		"a sink":      {change: []string{"setting: 2", "setting: 9"}, opened: []string{"open a"}, closed: []string{"close a"}, routes: []string{"downstream", "plain"}},
		"a handler":   {change: []string{"setting: 1", "setting: 9"}, opened: []string{"open h"}, closed: []string{"close h"}, routes: []string{"handled"}},
		"more calls":  {change: []string{"handler: h, to: b", "handler: h, concurrency: 9, to: b"}, opened: []string{"open h"}, closed: []string{"close h"}, routes: []string{"handled"}},
		"fewer calls": {change: []string{"handler: h, to: b", "handler: h, concurrency: 1, to: b"}, routes: []string{"handled"}},
		"a filter":    {change: []string{"> 3", "> 4"}, routes: []string{"crowded"}},
		"an index":    {change: []string{"byNode: object.spec.nodeName", "byNode: object.spec.hostname"}, routes: []string{"crowded"}},
		"a name":      {change: []string{"name: plain", "name: renamed, id: plain"}, routes: []string{"renamed"}},
		"a define":    {change: []string{`!= ""`, `!= "x"`}, routes: []string{"crowded", "downstream", "handled", "plain", "upstream"}},
		"a sink that nobody uses": {
			change: []string{"  b: {fake", "  c: {fake: {}}\n  b: {fake"}, opened: []string{"open c"},
		},
		"another upstream route": {
			change: []string{"- {name: downstream", "- {name: upstream2, from: nodes, to: [{route: downstream}]}\n  - {name: downstream"}, routes: []string{"upstream2"},
		},
		"a removed route": {change: []string{"  - {name: handled, from: pods, handler: h, to: b}\n", ""}, closed: []string{"close h"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			env := r.env()
			e := open(t, env, base)
			before := versions(e.Set)
			r.take()

			next := engine.NewSet(env, plan(t, env, strings.NewReplacer(test.change...).Replace(base)))
			must.Succeed(t, next.OpenComponents(t.Context(), e.Set))
			next.OpenStores(e.Set)
			if got := r.take(); !slices.Equal(got, test.opened) {
				t.Errorf("%q, want %q", got, test.opened)
			}
			var changed []string
			after := versions(next)
			for _, route := range slices.Sorted(maps.Keys(after)) {
				if after[route] != before[route] {
					changed = append(changed, route)
				}
			}
			if !slices.Equal(changed, test.routes) {
				t.Errorf("other routes are %q, want %q", changed, test.routes)
			}
			must.Succeed(t, e.Set.CloseUnused(t.Context(), next))
			if got := r.take(); !slices.Equal(got, test.closed) {
				t.Errorf("%q, want %q", got, test.closed)
			}
		})
	}
}

// TestSecretRoutes shows which routes see Secrets, without state.dir too: those with a source of
// Secrets, those that look up their data, and those that get the events of one of them.
func TestSecretRoutes(t *testing.T) {
	// Guarantee: secret-traces
	t.Parallel()
	const text = `version: 1
sources: {pods: {resource: v1/pods}, secrets: {resource: v1/secrets, secrets: true}}
sinks: {a: {fake: {}}}
routes:
  - {name: last, to: a}
  - {name: next, to: [{route: last}]}
  - {name: own, from: secrets, to: [{route: next}]}
  - {name: looks, from: pods, filter: 'get("secrets", "n", "a") != null', to: a}
  - {name: plain, from: pods, to: a}
`
	e := open(t, (&recorder{}).env(), text)
	var got []string
	for _, r := range e.Set.Routes() {
		if r.Secret {
			got = append(got, r.Name)
		}
	}
	if want := []string{"last", "next", "own", "looks"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func versions(s *engine.Set) map[string]string {
	versions := make(map[string]string)
	for _, r := range s.Routes() {
		versions[r.Name] = r.Version
	}
	return versions
}

// TestOpenFails: components that were opened before the failing one are closed.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	env := r.env()
	broken := strings.NewReplacer("  h: {fake", "  broken: {fake", "handler: h", "handler: broken").Replace(base)
	e := engine.New(env, plan(t, env, broken))
	if err := e.OpenSet(t.Context()); err == nil || err.Error() != "handlers.broken: does not open" {
		t.Errorf("got %v", err)
	}
	must.Report(t, e.Close(t.Context()))
	if got, want := fmt.Sprint(r.take()), "[open a open b close b close a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFlow: objects that are injected into the watches reach the sinks of the routes that want
// them; a route with look-ups waits until their source has synced; and a handler is closed before
// the sinks.
func TestFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		e := open(t, r.env(), strings.ReplaceAll(base, "> 3", "> 0"))
		injectors, saved := map[string]*informer.Injector{}, map[string]*informer.Watch{}
		for _, wanted := range e.Set.WantedWatches() {
			watch := wanted.Add(e.Factory)
			saved[wanted.Spec.ID()] = watch
			injector, err := watch.Injector(map[string]string{"pods": "Pod", "nodes": "Node"}[wanted.Sources[0].Name])
			must.Succeed(t, err)
			injectors[wanted.Sources[0].Name] = injector
		}
		must.Succeed(t, errors.Join(e.OpenPipeline(pipeline.Config{Routes: e.Set.Routes()}), e.OpenSaved(t.Context(), saved)))
		e.Start(t.Context(), t.Context())
		expect := func(what string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			got := slices.Sorted(slices.Values(r.take()))
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("opened", "open a", "open b", "open h")
		must.Succeed(t, injectors["nodes"].List(t.Context(), []string{object("Node", "n", "")}, "1"))
		must.Succeed(t, injectors["nodes"].Put(t.Context(), object("Node", "m", "")))
		expect("pods have not synced", "a took m of downstream", "a took m of plain")
		must.Succeed(t, injectors["pods"].List(t.Context(), []string{object("Pod", "p", "m")}, "1"))
		expect("pods have synced", "b took m of crowded")
		must.Succeed(t, injectors["pods"].Put(t.Context(), object("Pod", "q", "m")))
		expect("a pod", "b took default/q of handled")
		must.Report(t, e.Close(t.Context()))
		if got, want := fmt.Sprint(r.take()), "[close h close b close a]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// object returns the text of an object; a node has no namespace.
func object(kind, name, node string) string {
	namespace := map[string]string{"Pod": "default"}[kind]
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"7"},"spec":{"nodeName":%q}}`,
		kind, namespace, name, kind+name, node)
}
