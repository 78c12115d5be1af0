package app_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/internal/app"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal remembers what was opened and closed.
type journal struct {
	opening func() // when a sink is opened; nil: nothing
	mu      sync.Mutex
	lines   []string
	file    string // part of the configuration of each handler; empty: none
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// part is a sink and a handler that does nothing but say when it is closed.
type part struct {
	name    string
	journal *journal
}

func (p part) Write(context.Context, []event.Event) []error { return nil }
func (p part) Handle(_ context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	return make([]plugins.Result, len(batch)), nil
}

func (p part) Close(context.Context) error {
	p.journal.add("close " + p.name)
	return nil
}

// components are a sink and a handler of the kind "fake"; a handler named "broken" cannot be opened.
func components(j *journal) app.Components {
	check := func(n config.Node) config.Problems { return n.Decode(&struct{}{}) }
	lookups := func(n config.Node) (grants []plugins.LookupGrant) {
		for _, item := range n.At("lookup").Items() {
			var name string
			_ = item.Decode(&name)
			source, index, _ := strings.Cut(name, ".")
			grants = append(grants, plugins.LookupGrant{Source: source, Index: index, Node: item})
		}
		return grants
	}
	return app.Components{
		Sinks: []plugins.Factory[plugins.Sink]{{Kind: "fake", Check: check, Open: func(_ context.Context, _ config.Node, env plugins.Env) (plugins.Sink, error) {
			if j.opening != nil {
				j.opening()
			}
			j.add("open " + env.Name)
			return part{env.Name, j}, nil
		}}},
		Handlers: []plugins.Factory[plugins.Handler]{{Kind: "seer", Check: func(config.Node) config.Problems { return nil }, Lookups: lookups}, {Kind: "fake", Check: check, Files: func(config.Node) []string { return []string{j.file} }, Open: func(_ context.Context, _ config.Node, env plugins.Env) (plugins.Handler, error) {
			if env.Name == "broken" {
				return nil, errors.New("it is broken")
			}
			j.add(fmt.Sprintf("open %s for %d", env.Name, env.Workers))
			return part{env.Name, j}, nil
		}}},
		Emit: func(*expr.Program, expr.Cache, bool) plugins.Handler { return part{"emit", j} },
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheck(t *testing.T) {
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
  - {name: a, from: pods, handle: good, to: out}
`, []string{
			`config.yaml:10:25: handlers.bad.seer.lookup[0]: unknown source "pod"; did you mean "pods"?`,
			`config.yaml:10:30: handlers.bad.seer.lookup[1]: source "pods" has no index "byNod"; did you mean "byNode"?`,
			`config.yaml:10:42: handlers.bad.seer.lookup[2]: source "ids" keeps identities only; give it cache: full or cache: metadata`,
			`config.yaml:10:47: handlers.bad.seer.lookup[3]: source "tokens" has Secrets: an index of it is granted only beside the source itself; add "tokens"`,
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
			`config.yaml:11:50: routes[1].filter: there are several sources: say whose index it is, as in "ids.byNode"`,
			`config.yaml:12:35: routes[2].filter: looks up source "ids", which keeps identities only`,
			`config.yaml:12:65: routes[2].key: `,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.config)
			problems := app.Check(t.Context(), file, components(&journal{}), app.CheckOptions{}).Problems
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

// kubeconfig returns the path of one whose server nobody listens on.
func kubeconfig(t *testing.T) string {
	t.Helper()
	return write(t, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`)
}

const running = `version: 1
cluster: {name: test, kubeconfig: %q}
listen: {probes: "127.0.0.1:0"}
sources: {pods: {resource: v1/pods, namespaces: [a, b]}}
sinks: {one: {fake: {}}, two: {fake: {}}}
handlers: {h: {fake: {}}, unused: {fake: {}}%s}
routes:
  - {name: a, from: pods, handle: h, to: [one, two], concurrency: 3}
  - {name: b, from: pods, handle: h, to: one, concurrency: 2}
  - {name: c, from: pods, filter: list("pods").size() > 0, to: two}
`

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// TestRunAndStop: nobody is there to watch, and the router starts, says so, and stops in order without leaving anything behind.
func TestRunAndStop(t *testing.T) {
	var j journal
	log := &syncBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, app.Options{
			Config: write(t, fmt.Sprintf(running, kubeconfig(t), "")), Components: components(&j), Version: "v0",
			Log: slog.New(slog.NewTextHandler(log, nil)), Stdout: io.Discard, DrainTimeout: time.Second,
		})
	}()
	address := ""
	for deadline := time.Now().Add(20 * time.Second); address == "" && time.Now().Before(deadline); {
		if m := regexp.MustCompile(`for=probes address=(\S+)`).FindStringSubmatch(log.String()); m != nil && strings.Contains(log.String(), "started") {
			address = m[1]
		}
	}
	code, body := get(t, "http://"+address+"/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "sources/pods") {
		t.Errorf("/readyz says %d\n%s", code, body)
	}
	if _, body := get(t, "http://"+address+"/metrics"); !strings.Contains(body, `deltarouter_build_info{version="v0"} 1`) {
		t.Error("/metrics lacks the version")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := []string{"open one", "open two", "open h for 5", "close h", "close two", "close one"}
	if !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
	for _, line := range []string{"state.dir is not set", "unused"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestOpenFails: what was opened before is closed again, and the error names the place.
func TestOpenFails(t *testing.T) {
	var j journal
	text := strings.Replace(fmt.Sprintf(running, kubeconfig(t), ", broken: {fake: {}}"), "name: b, from: pods, handle: h", "name: b, from: pods, handle: broken", 1)
	err := app.Run(t.Context(), app.Options{
		Config: write(t, text), Components: components(&j), Log: slog.New(slog.DiscardHandler), Stdout: io.Discard,
	})
	if err == nil || err.Error() != "handlers.broken: it is broken" {
		t.Errorf("got error %v", err)
	}
	if want := []string{"open one", "open two", "close two", "close one"}; !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
}

func TestRunRefusesABadConfig(t *testing.T) {
	err := app.Run(t.Context(), app.Options{Config: write(t, "version: 2\n"), Log: slog.New(slog.DiscardHandler)})
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Errorf("got %v, want problems", err)
	}
}
