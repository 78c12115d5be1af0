package compile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// plans makes plans of a configuration with objects, which share their expressions.
type plans struct {
	testing.TB
	exprs *compile.Expressions
	dir   string
}

func (t plans) plan(source string, objects ...*config.Fragment) *compile.Plan {
	t.Helper()
	path := filepath.Join(t.dir, "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(`
version: 1
sources: {maps: `+source+`}
sinks: {out: {stdout: {}}}
customResources: {routes: {namespaces: [a, b], sources: [maps], sinks: [out]}}
routes: [{name: own, from: maps, filter: 'op == "added"', to: out}]
`), 0o600))
	p, problems := (*compile.Plans)(nil).Make(t.Context(), compile.Input{Path: path, Tolerant: true, Fragments: objects, Expressions: t.exprs},
		compile.Components{Sinks: []plugins.SinkKind{stdout.Kind()}}, func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") })
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

// route returns an object with a route.
func route(namespace, name, filter string) *config.Fragment {
	return &config.Fragment{
		Name: "route/" + name + " -n " + namespace, Object: &config.ObjectRef{Namespace: namespace, Name: name, UID: namespace + name},
		Data: fmt.Appendf(nil, "metadata: {name: %s, namespace: %s}\nspec: {from: [maps], filter: %q, to: [out]}\n", name, namespace, filter),
	}
}

// filterOf returns the program of the filter of a route.
func filterOf(t *testing.T, p *compile.Plan, name string) any {
	t.Helper()
	i := slices.IndexFunc(p.Routes, func(r compile.Route) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no route %s: %v", name, p.Mistakes())
	}
	return p.Routes[i].FilterProgram
}

// TestCompileOnlyChanged shows that a plan has the programs of the plan before it, as far as
// neither the text nor the type of the objects changed.
func TestCompileOnlyChanged(t *testing.T) {
	m := plans{t, new(compile.Expressions), t.TempDir()}
	const maps, text = "{resource: v1/configmaps}", `object.metadata.name == "x"`
	first := m.plan(maps, route("a", "same", text), route("a", "changes", text))
	if filterOf(t, first, "a/same") != filterOf(t, first, "a/changes") {
		t.Error("one text was compiled twice")
	}
	second := m.plan(maps, route("a", "same", text), route("a", "changes", text+" || true"))
	for name, same := range map[string]bool{"own": true, "a/same": true, "a/changes": false} {
		if got := filterOf(t, first, name) == filterOf(t, second, name); got != same {
			t.Errorf("%s: the same program: %t, want %t", name, got, same)
		}
	}
	typed := m.plan("{resource: v1/secrets}", route("a", "same", text))
	for _, name := range []string{"own", "a/same"} {
		if filterOf(t, typed, name) == filterOf(t, second, name) {
			t.Errorf("%s has the program for another type", name)
		}
	}
	if again := m.plan(maps, route("a", "same", text)); filterOf(t, again, "a/same") == filterOf(t, second, "a/same") {
		t.Error("a program that a plan did not use was not forgotten")
	}
}

// TestEffortOfOwner shows that the expressions of a namespace have a bound together, which does not
// depend on the plans before, and that it concerns no other namespace.
func TestEffortOfOwner(t *testing.T) {
	m := plans{t, new(compile.Expressions), t.TempDir()}
	var objects []*config.Fragment
	for i := range 24 {
		objects = append(objects, route("a", fmt.Sprintf("r%02d", i), strings.Repeat(`op == "x" || `, 750)+fmt.Sprintf(`op == "%d"`, i)))
	}
	objects = append(objects, route("b", "r", `op == "x"`))
	for _, when := range []string{"first", "again"} {
		p := m.plan("{resource: v1/configmaps}", objects...)
		filterOf(t, p, "b/r")
		if n := len(p.Rejected); n == 0 || n == 24 || len(p.Routes) != 26-n {
			t.Fatalf("%s: %d routes, %d refused", when, len(p.Routes), n)
		}
		for _, r := range p.Rejected {
			if !strings.Contains(r.String(), "would take too long to compile together with the expressions before it") || r.Fragment.Object.Name < "r05" {
				t.Errorf("%s: %s: %s", when, r.Fragment.Object.Name, r.String())
			}
		}
	}
}

// BenchmarkReload measures plans of 300 routes, one of which changes from plan to plan, and reports
// the time without kept expressions divided by that with them.
func BenchmarkReload(b *testing.B) {
	var took [2]time.Duration
	for i := range b.N {
		objects := []*config.Fragment{route("a", "changes", fmt.Sprintf(`object.metadata.name == "%d"`, i))}
		for k := range 299 {
			objects = append(objects, route("a", fmt.Sprintf("r%d", k),
				fmt.Sprintf(`object.metadata.labels.?team.orValue("") == "%d" && object.metadata.?annotations.orValue({}).exists(k, k.startsWith("x"))`, k)))
		}
		kept := plans{b, new(compile.Expressions), b.TempDir()}
		kept.plan("{resource: v1/configmaps}", objects...)
		objects[0] = route("a", "changes", fmt.Sprintf(`object.metadata.namespace == "%d"`, i))
		for k, m := range []plans{{b, nil, kept.dir}, kept} {
			began := time.Now()
			m.plan("{resource: v1/configmaps}", objects...)
			took[k] += time.Since(began)
		}
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "new/kept")
}
