package check_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// seers is a kind of handler whose look-ups are configured.
type seers struct{ fakekind.Handler }

func (seers) Lookups(n config.Node) (grants []plugins.LookupGrant) {
	for _, item := range n.At("lookup").Items() {
		var name string
		_ = item.Decode(&name)
		source, index, _ := strings.Cut(name, ".")
		grants = append(grants, plugins.LookupGrant{Source: source, Index: index, Node: item})
	}
	return grants
}

func TestCheck(t *testing.T) {
	// Guarantee: rule-never-works
	const head = "version: 1\nsinks: {out: {fake: {}}}\n"
	for _, c := range []struct {
		name, config string
		want         []string // problems, without the file's folder
	}{
		{"a good one", head + `
define: {web: object.metadata.name.startsWith("web")}
sources: {pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}, ids: {resource: v1/secrets, cache: identity}}
routes:
  - {name: a, from: pods, filter: 'web && count("byNode", "n1") > 1', to: out}
  - {name: b, from: [pods, ids], filter: 'count("pods.byNode", "n1") > 1', to: out}
`, nil},
		{"a define", head + `define:
  web: |
    object.metadata.name ==
      names
sources: {pods: {resource: v1/pods}}
routes: [{name: a, from: pods, filter: web, to: out}]
`, []string{`config.yaml:6:7: define.web: undeclared reference to 'names'`}},
		{"what metadata alone does not have", head + `define: {running: object.status.phase == "Running"}
sources:
  pods: {resource: v1/pods}
  names: {resource: v1/pods, cache: metadata, indexes: {byNode: object.spec.nodeName, byApp: 'object.metadata.labels["app"]'}}
routes:
  - {name: a, from: pods, filter: running && changed("spec"), to: out}
  - {name: b, from: [pods, names], filter: 'running && object.kind == "Pod"', key: object.spec.nodeName, to: out}
  - {name: c, from: names, filter: has(oldObject.metadata.labels), emit: '{"x": object.spec}', to: out}
`, []string{
			`config.yaml:3:26: define.running: meta.v1.PartialObjectMetadata has no field "status"; it has apiVersion, kind, metadata (for source "names", in routes[1].filter)`,
			`config.yaml:6:72: sources.names.indexes.byNode: meta.v1.PartialObjectMetadata has no field "spec"; it has apiVersion, kind, metadata`,
			`config.yaml:9:91: routes[1].key: meta.v1.PartialObjectMetadata has no field "spec"`,
			`config.yaml:10:88: routes[2].emit: meta.v1.PartialObjectMetadata has no field "spec"`,
		}},
		{"a filter by source", head + `
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
routes:
  - {name: a, from: [pods, nodes], filter: {pods: object.spec.nodeName == "n1", nodes: object.spec.unschedulable}, to: out}
  - {name: b, from: [pods, nodes], filter: {pods: object.spec.unschedulable, node: "true"}, to: out}
`, []string{
			`config.yaml:7:44: routes[1].filter: has no expression for source "nodes": add one; true takes every delta`,
			`config.yaml:7:63: routes[1].filter.pods: core.v1.PodSpec has no field "unschedulable"`,
			`config.yaml:7:84: routes[1].filter.node: the route has no source "node"; did you mean "nodes"?`,
		}},
		{"what handlers may look up", head + `sources:
  pods: {resource: v1/pods, indexes: {byNode: object.spec.nodeName}}
  ids: {resource: v1/pods, cache: identity}
  tokens: {resource: v1/secrets, secrets: true}
  names: {resource: v1/secrets}
handlers:
  good: {seer: {lookup: [pods, pods.byNode, pods.owner, tokens, tokens.name]}}
  bad: {seer: {lookup: [pod, pods.byNod, ids, tokens.name, names, names.name]}}
routes:
  - {name: a, from: pods, handler: good, to: out}
`, []string{
			`config.yaml:10:25: handlers.bad.seer.lookup[0]: unknown source "pod"; did you mean "pods"?`,
			`config.yaml:10:30: handlers.bad.seer.lookup[1]: source "pods" has no index "byNod"; did you mean "byNode"?`,
			`config.yaml:10:42: handlers.bad.seer.lookup[2]: source "ids" caches identities only; give it cache: full or cache: metadata`,
			`config.yaml:10:47: handlers.bad.seer.lookup[3]: source "tokens" has Secrets: an index of it needs a grant of the source itself; add "tokens"`,
			`config.yaml:10:60: handlers.bad.seer.lookup[4]: source "names" has Secrets without their data; give it secrets: true if the handler may see them`,
			`config.yaml:10:67: handlers.bad.seer.lookup[5]: source "names" has Secrets without their data`,
		}},
		{"everything at once", head + `sources:
  pods:
    resource: v1/pods
    indexes: {byNode: "object.spec.nodeName +"}
  ids: {resource: v1/pods, cache: identity}
handlers: {h: {fack: {}}, g: {fake: {colour: red}}}
routes:
  - {name: a, from: pods, filter: 'lookup("byNod", "x").size() > 0', to: out}
  - {name: b, from: [pods, ids], filter: 'lookup("byNode", "x").size() > 0', to: out}
  - {name: c, from: pods, filter: list("ids").size() > 0, key: '[1]', to: out}
`, []string{
			`config.yaml:6:46: sources.pods.indexes.byNode: `,
			`config.yaml:8:15: handlers.h: unknown kind of handler "fack"; there are: seer, fake`,
			`config.yaml:8:38: handlers.g.fake.colour: unknown key`,
			`config.yaml:10:43: routes[0].filter: `,
			`config.yaml:11:50: routes[1].filter: there are several sources: write the source before the index, as in "ids.byNode"`,
			`config.yaml:12:35: routes[2].filter: looks up source "ids", which caches identities only`,
			`config.yaml:12:65: routes[2].key: `,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			problems := check.File(t.Context(), file, components(), check.Options{}).Problems
			var got []string
			if len(problems) > 0 {
				got = strings.Split(strings.ReplaceAll(problems.Error(), filepath.Dir(file)+"/", ""), "\n")
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// components are sinks and handlers of the kind "fake", and handlers with look-ups.
func components() compile.Components {
	return compile.Components{
		Sinks: []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("fake")}},
		Handlers: []plugins.HandlerKind{
			seers{fakekind.Handler{Definition: fakekind.Define("seer"), CheckFunc: func(config.Node) config.Problems { return nil }}},
			fakekind.Handler{Definition: fakekind.Define("fake")},
		},
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestDeadClusterOnce: check -connect names a cluster that does not answer once, although it asks
// for the schemas and for the rights.
func TestDeadClusterOnce(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	folder := t.TempDir()
	kubeconfig, path := filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "config.yaml")
	must.Succeed(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c}}], current-context: c}`, gone.URL), 0o600))
	must.Succeed(t, os.WriteFile(path, fmt.Appendf(nil, `
version: 1
cluster: {name: test, kubeconfig: %q}
sources: {pods: {resource: v1/pods}}
sinks: {out: {fake: {}}}
routes: [{name: r, from: pods, to: out}]
`, kubeconfig), 0o600))
	found := check.File(t.Context(), path, components(), check.Options{Connect: true})
	if text := found.Problems.Error() + "\n" + found.Warnings.Error(); strings.Count(text, gone.URL) != 1 || len(found.Problems) != 1 {
		t.Errorf("the cluster is not named once:\n%s", text)
	}
}
