package compile_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// document is the OpenAPI document of a custom resource whose spec has one field.
const document = `{"paths": {"/apis/example.org/v1/gizmos": {"get": {"x-kubernetes-action": "list",
"x-kubernetes-group-version-kind": {"group": "example.org", "version": "v1", "kind": "Gizmo"}}}},
"components": {"schemas": {"org.example.v1.Gizmo": {"type": "object",
"x-kubernetes-group-version-kind": [{"group": "example.org", "version": "v1", "kind": "Gizmo"}],
"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
"spec": {"type": "object", "properties": {%q: {"type": "integer"}}}}}}}}`

// cluster returns the client of a server whose gizmos have one field.
func cluster(t *testing.T, field string) func(config.Cluster) (*informer.Client, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v3/apis/example.org/v1" {
			fmt.Fprintf(w, document, field)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c}}], current-context: c}`, server.URL), 0o600))
	return func(config.Cluster) (*informer.Client, error) {
		client, err := informer.NewClient(config.Cluster{Kubeconfig: file}, config.Policy{})
		if err == nil {
			t.Cleanup(client.Close)
		}
		return client, err
	}
}

// looker is a kind of handlers that look up gizmos by their size.
type looker struct{ fakekind.Handler }

func (looker) Lookups(config.Node) []plugins.LookupGrant {
	return []plugins.LookupGrant{{Source: "gizmos"}, {Source: "gizmos", Index: "bySize"}}
}

// TestUnfit: routes whose expressions do not fit the present schema of a custom resource are left
// out with those that need them, and no others. Mistakes of the configuration itself are problems.
func TestUnfit(t *testing.T) {
	const sources = `
version: 1
sources: {gizmos: {resource: example.org/v1/gizmos, indexes: {%s}}, maps: {resource: v1/configmaps}}
sinks: {out: {stdout: {}}}
routes:
  - {name: maps, from: maps, to: out}
`
	all := func(string) bool { return true }
	kinds := compile.Components{
		Sinks: []plugins.SinkKind{stdout.Kind()}, Handlers: []plugins.HandlerKind{looker{fakekind.Handler{Definition: fakekind.Define("looker")}}},
	}
	for name, c := range map[string]struct {
		index, routes string
		permit        func(string) bool
		unfit         []string // nil: the configuration is refused
		run           []string
	}{
		"filter": {
			routes: "  - {name: big, from: gizmos, filter: object.spec.size > 3, to: out}\n  - {name: any, from: gizmos, to: out}\n",
			permit: all, unfit: []string{"big"}, run: []string{"maps", "any"},
		},
		"target": {
			routes: "  - {name: up, from: maps, to: [{route: down}]}\n" +
				"  - {name: down, filter: 'list(\"gizmos\").exists(g, g.spec.size > 3)', to: out}\n",
			permit: all, unfit: []string{"up", "down"}, run: []string{"maps"},
		},
		"upstream": {
			routes: "  - {name: up, from: gizmos, filter: object.spec.size > 1, to: [{route: down}, {route: other}]}\n  - {name: down, to: out}\n" +
				"  - {name: fine, from: gizmos, to: [{route: other}]}\n  - {name: other, to: out}\n",
			permit: all, unfit: []string{"up", "down"}, run: []string{"maps", "fine", "other"},
		},
		"index and its look-up": {
			index:  "bySize: string(object.spec.size)",
			routes: "  - {name: looks, from: maps, filter: 'count(\"gizmos.bySize\", \"1\") > 0', to: out}\n  - {name: any, from: gizmos, to: out}\n",
			permit: all, unfit: []string{"looks"}, run: []string{"maps", "any"},
		},
		"index and the look-up of a handler": {
			index:  "bySize: string(object.spec.size)",
			routes: "  - {name: looks, from: maps, handler: h, to: out}\n  - {name: any, from: gizmos, to: out}\nhandlers: {h: {looker: {}}}\n",
			permit: all, unfit: []string{"looks"}, run: []string{"maps", "any"},
		},
		"not permitted with a handler": {
			index:  "bySize: string(object.spec.size)",
			routes: "  - {name: looks, from: maps, handler: h, to: out}\nhandlers: {h: {looker: {}}}\n", permit: func(route string) bool { return route != "looks" },
		},
		"not permitted": {
			routes: "  - {name: big, from: gizmos, filter: object.spec.size > 3, to: out}\n", permit: func(route string) bool { return route != "big" },
		},
		"a start without state": {routes: "  - {name: big, from: gizmos, filter: object.spec.size > 3, to: out}\n"},
		"a mistake of its own": {
			routes: "  - {name: big, from: gizmos, filter: object.spec.size > 3, to: out}\n  - {name: bad, from: maps, filter: object.dota.x == '', to: out}\n", permit: all,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			must.Succeed(t, os.WriteFile(path, []byte(fmt.Sprintf(sources, c.index)+c.routes), 0o600))
			in := compile.Input{Path: path, Tolerant: true, Unfit: c.permit}
			plan := func(field string) (*compile.Plan, config.Problems) {
				return (*compile.Plans)(nil).Make(t.Context(), in, kinds, cluster(t, field))
			}
			p, problems := plan("dimensions")
			if c.unfit == nil {
				if len(problems) == 0 {
					t.Error("it starts")
				}
				return
			}
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var unfit, run []string
			for i := range p.Unfit {
				unfit = append(unfit, p.Unfit[i].Route.Name)
				if text := p.Unfit[i].String(); !strings.Contains(text, "config.yaml:") || !strings.Contains(text, "disabled") {
					t.Error(text)
				}
			}
			for i := range p.Routes {
				run = append(run, p.Routes[i].Name)
			}
			if !slices.Equal(unfit, c.unfit) || !slices.Equal(run, c.run) || len(p.Config.Routes) != len(run) {
				t.Errorf("disabled %q, running %q", unfit, run)
			}
			if p, problems := plan("size"); len(problems)+len(p.Unfit) > 0 {
				t.Errorf("with the schema that fits: %v, %d routes are disabled", problems, len(p.Unfit))
			}
		})
	}
}
