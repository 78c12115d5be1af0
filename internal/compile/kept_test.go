package compile_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// reading is a kind of handlers that declare the fields that they read, and look objects up.
type reading struct {
	plugins.Definition[readingConfig]
}

type readingConfig struct {
	Fields []string `yaml:"fields" doc:"The fields."`
	Lookup string   `yaml:"lookup" doc:"A source."`
}

func (k reading) Fields(node config.Node) (paths [][]string) {
	for _, path := range k.Accepted(node).Fields {
		paths = append(paths, strings.Split(path, "."))
	}
	return paths
}

func (k reading) Lookups(node config.Node) []plugins.LookupGrant {
	if source := k.Accepted(node).Lookup; source != "" {
		return []plugins.LookupGrant{{Source: source}}
	}
	return nil
}

func (reading) Open(context.Context, config.Node, plugins.HandlerEnv) (plugins.Handler, error) {
	return nil, errors.ErrUnsupported
}

// opaque is a kind whose handlers declare nothing.
type opaque struct{ plugins.Definition[struct{}] }

func (opaque) Open(context.Context, config.Node, plugins.HandlerEnv) (plugins.Handler, error) {
	return nil, errors.ErrUnsupported
}

// keptFields returns the fields that each source with `cache: auto` keeps, with their readers.
func keptFields(t *testing.T, text string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	cfg, problems := config.Load(path, config.Policy{})
	components := compile.Components{
		Handlers: []plugins.HandlerKind{
			reading{plugins.Definition[readingConfig]{Name: "reading"}}, opaque{plugins.Definition[struct{}]{Name: "opaque"}},
		},
		Sinks: []plugins.SinkKind{stdout.Kind()},
	}
	known, err := compile.SavedSchemas("")
	must.Succeed(t, err)
	p, problems := compile.NewPlan(t.Context(), cfg, problems, components, known, false)
	must.Succeed(t, problems.Err())
	got := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(p.Sources)) {
		source := p.Sources[name]
		if cfg.Sources[name].Cache != config.CacheAuto {
			if !source.Kept.IsWhole() || source.Readers != nil {
				t.Errorf("%s keeps %s", name, source.Kept.Text())
			}
			continue
		}
		what := strings.Join(source.Kept.Paths(), " ")
		if source.Kept.IsWhole() {
			what = "*"
		}
		var readers []string
		for _, r := range source.Readers {
			readers = append(readers, strings.TrimSuffix(r.Name+" ("+r.Why+")", " ()"))
		}
		got[name] = what + " for " + strings.Join(readers, ", ")
	}
	return got
}

// TestKept shows the fields that the caches of sources keep.
func TestKept(t *testing.T) {
	const start = "version: 1\nsinks: {out: {stdout: {}}}\n"
	for _, tt := range []struct {
		name, config string
		want         map[string]string
	}{
		{"an emit", `
sources: {pods: {resource: v1/pods, cache: auto}, other: {resource: v1/pods}}
routes: [{name: r, from: [pods, other], emit: '{"phase": object.status.phase}', to: out}]
`, map[string]string{"pods": "status.phase for route r"}},
		{"nothing", `
sources: {pods: {resource: v1/pods, cache: auto}, nodes: {resource: v1/nodes}}
routes: [{name: r, from: nodes, to: out}]
`, map[string]string{"pods": " for "}},
		{"the default event", `
sources: {pods: {resource: v1/pods, cache: auto}}
routes: [{name: r, from: pods, ops: added, filter: 'object.status.phase == "x"', to: out}]
`, map[string]string{"pods": "* for route r, route r (its events contain the whole object: set emit or a handler with fields)"}},
		{"handlers", `
sources: {a: {resource: v1/pods, cache: auto}, b: {resource: v1/pods, namespaces: x, cache: auto}, c: {resource: v1/nodes, cache: auto}, d: {resource: v1/services, cache: auto}}
handlers: {few: {reading: {fields: [spec.nodeName, status.phase]}}, all: {reading: {}}, opaque: {opaque: {}}, curious: {reading: {fields: kind, lookup: d}}}
routes:
  - {name: few, from: a, handler: few, to: out}
  - {name: all, from: b, handler: all, to: out}
  - {name: opaque, from: c, handler: opaque, to: out}
  - {name: curious, from: a, handler: curious, to: out}
`, map[string]string{
			"a": "spec.nodeName status.phase for handler few, handler curious",
			"b": "* for handler all (the fields that it reads are not known: set fields, or sha256 of a module that declares them)",
			"c": "* for handler opaque (the fields that it reads are not known: set fields, or sha256 of a module that declares them)",
			"d": "* for handler curious (it looks up whole objects)",
		}},
		{"every expression", `
handlers: {few: {reading: {fields: spec.hostname}}}
sources:
  pods: {resource: v1/pods, cache: auto, indexes: {byNode: object.spec.nodeName, byIP: [object.status.podIP, object.status.hostIP]}}
  nodes: {resource: v1/nodes, cache: auto}
  deployments: {resource: apps/v1/deployments, cache: auto}
routes:
  - name: r
    from: pods
    filter: changed("spec.priority") && oldObject.status.reason == "x"
    key: object.metadata.labels.team
    handler: few
    with: {owner: controller(object).kind, node: 'get("nodes", "", object.spec.nodeName).status.nodeInfo.architecture'}
    watches: {nodes: 'object.metadata.labels.zone == "a" ? lookup("pods.byNode", object.metadata.name) : []'}
    to: out
  - name: held
    from: nodes
    when: object.spec.unschedulable
    limit: {key: object.spec.providerID, every: 1m}
    emit: '{"count": count("pods.owner", object.metadata.uid)}'
    to: out
`, map[string]string{
			"pods": "metadata.labels.team metadata.ownerReferences spec.hostname spec.nodeName spec.priority status.hostIP status.podIP status.reason" +
				" for index byIP, index byNode, route r, watches of route r, handler few, route held",
			"nodes":       "metadata.labels.zone metadata.ownerReferences spec.providerID spec.unschedulable status.nodeInfo.architecture for route r, watches of route r, route held",
			"deployments": "metadata.ownerReferences for route r",
		}},
		{"chains", `
sources: {pods: {resource: v1/pods, cache: auto}}
handlers: {few: {reading: {fields: spec.nodeName}}}
routes:
  - {name: up, from: pods, emit: '{"phase": object.status.phase}', to: [{route: down}, {route: handled}]}
  - {name: down, filter: object.spec.priority > 3, to: out}
  - {name: handled, handler: few, to: out}
`, map[string]string{"pods": "spec.nodeName spec.priority status.phase for route up, route down, handler few"}},
		{"a shared watch", `
sources:
  a: {resource: v1/pods, namespaces: [x, y], cache: auto}
  b: {resource: v1/pods, namespaces: [y, z], cache: auto}
  c: {resource: v1/pods, namespaces: [z], cache: auto}
  d: {resource: v1/pods, namespaces: [x], cache: auto, labelSelector: a=b}
routes:
  - {name: a, from: a, emit: '{"a": object.spec.nodeName}', to: out}
  - {name: c, from: c, emit: '{"a": object.status.phase}', to: out}
`, map[string]string{
			"a": "spec.nodeName status.phase for route a, source b, which has the same watch",
			"b": "spec.nodeName status.phase for source a, which has the same watch, source c, which has the same watch",
			"c": "spec.nodeName status.phase for route c, source b, which has the same watch",
			"d": " for ",
		}},
		{"Secrets", `
sources: {secrets: {resource: v1/secrets, cache: auto}}
routes: [{name: r, from: secrets, emit: '{"type": object.type}', to: out}]
`, map[string]string{"secrets": "* for state folder (of Secrets only the identity is saved), route r"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := keptFields(t, start+tt.config); !maps.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
