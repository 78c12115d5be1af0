package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const watchConfig = `version: 1
sources:
  maps: {resource: v1/configmaps, namespaces: [one, two], indexes: {byValue: object.data.value}}
  secrets: {resource: v1/secrets, secrets: true, indexes: {byToken: string(object.data.token)}}
sinks: {out: {discard: {}}}
routes: [{name: all, from: [maps, secrets], to: out}]
`

// watched is a Cache whose objects a test changes. Each namespace of maps has a watch.
type watched struct {
	*Cache

	one, two, secrets *informer.Injector
	holder            *holder
	version           int
}

// holder is a Downstream without routes, where the delta of an object named held waits for release,
// under the cut lock of its watch.
type holder struct{ held, release chan struct{} }

// Admit implements informer.Downstream.
func (h *holder) Admit(_ context.Context, d *event.Delta) (event.Admission, error) {
	if d.New == nil || d.New.Key().Name != "held" {
		return nil, nil
	}
	return event.CommitFunc(func() {
		close(h.held)
		<-h.release
	}), nil
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(watchConfig), 0o600))
	cfg, problems := config.Load(file, config.Policy{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	env, err := cel.NewEnv(compile.Environment(cfg, nil, nil))
	must.Succeed(t, err)
	m, log := metrics.New(), slog.New(slog.DiscardHandler)
	specOf := func(source, name string) map[string]index.Spec {
		text := cfg.Sources[source].Indexes[name][0].Text
		program, err := env.Compile(text, cel.Index, source)
		must.Succeed(t, err)
		return map[string]index.Spec{name: index.NewSpec([]string{text}, []*cel.Program{program}, m.IndexErrors.WithLabelValues(source, name), log, name)}
	}
	h := &holder{held: make(chan struct{}), release: make(chan struct{})}
	factory := informer.New(informer.Config{Metrics: m, Log: log, Downstream: h})
	inv := &Inventory{
		config: cfg, catalog: index.NewCatalog(), watches: make(map[string][]informer.Spec), stores: make(map[string][]*index.Store), specs: make(map[string]map[string]index.Spec),
		environment: func() cel.EnvConfig { return compile.Environment(cfg, nil, nil) },
		env:         func() (*cel.Env, error) { return env, nil }, replaced: make(chan struct{}),
	}
	injectors := make(map[string]*informer.Injector)
	for _, w := range []struct{ source, index, namespace, resource string }{
		{"maps", "byValue", "one", "configmaps"}, {"maps", "byValue", "two", "configmaps"}, {"secrets", "byToken", "", "secrets"},
	} {
		specs := specOf(w.source, w.index)
		spec := informer.Spec{Resource: schema.GroupVersionResource{Version: "v1", Resource: w.resource}, Namespace: w.namespace, Secrets: true}
		store := index.NewStore(specs[w.index])
		injectors[w.source+w.namespace], err = factory.Watch(spec, store, informer.Source{Name: w.source}).Injector("")
		must.Succeed(t, err)
		inv.watches[w.source], inv.stores[w.source] = append(inv.watches[w.source], spec), append(inv.stores[w.source], store)
		inv.specs[w.source] = specs
		inv.catalog.Add(w.source, inv.stores[w.source], specs)
	}
	current := &Current{}
	current.Store(inv)
	all := &watched{Cache: NewCache(current, factory), one: injectors["mapsone"], two: injectors["mapstwo"], secrets: injectors["secrets"], holder: h}
	for _, i := range injectors {
		must.Succeed(t, i.List(t.Context(), nil, "1"))
	}
	return all
}

// apply applies changes: "one/a v" sets a ConfigMap with the value v, "one/a v app" gives it the
// label app too, and "one/a" deletes it.
func (w *watched) apply(t *testing.T, changes ...string) {
	t.Helper()
	for _, change := range changes {
		w.version++
		fields := strings.Fields(change)
		namespace, name, _ := strings.Cut(fields[0], "/")
		injector := w.one
		if namespace == "two" {
			injector = w.two
		}
		text := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d"`, name, namespace, fields[0], w.version+1)
		if len(fields) > 2 {
			text += fmt.Sprintf(`,"labels":{"app":%q}`, fields[2])
		}
		if len(fields) == 1 {
			must.Succeed(t, injector.Delete(t.Context(), text+`}}`))
			continue
		}
		must.Succeed(t, injector.Put(t.Context(), text+fmt.Sprintf(`},"data":{"value":%q}}`, fields[1])))
	}
}

var errEnough = errors.New("enough")

// line is an event in a word: the type, the object, and its value.
func line(t *testing.T, e api.WatchEvent) string {
	t.Helper()
	if e.Object == nil {
		return e.Type
	}
	o := parse(t, "configmaps", string(e.Object))
	return e.Type + " " + o.Key().String() + "=" + strings.Trim(string(o.Raw().Get("data").Get("value")), `"`)
}

// copied is a copy of objects that follows a stream.
type copied map[event.Key]*event.Object

// take applies an event, and reports why the event does not fit the copy.
func (c copied) take(kind string, o *event.Object) error {
	last := c[o.Key()]
	switch {
	case (last == nil) != (kind == api.WatchAdded):
		return fmt.Errorf("%s of %s, and the copy has %v", kind, o, last)
	case kind == api.WatchDeleted:
		delete(c, o.Key())
		if o.ResourceVersion() != last.ResourceVersion() {
			return fmt.Errorf("%s was deleted in version %s, and the copy has %s", o, o.ResourceVersion(), last.ResourceVersion())
		}
		return nil
	case last != nil && o.Key().Name == "counter" && valueOf(o) != valueOf(last)+1:
		return fmt.Errorf("%d follows %d", valueOf(o), valueOf(last))
	}
	c[o.Key()] = o
	return nil
}

func valueOf(o *event.Object) (n int) {
	_, _ = fmt.Sscan(strings.Trim(string(o.Raw().Get("data").Get("value")), `"`), &n)
	return n
}

// follow checks a stream until it has some changes, or the last one of the test: done.
func (w *watched) follow(t *testing.T) (done bool) {
	t.Helper()
	all, listed, n := make(copied), false, 0
	err := w.Watch(t.Context(), api.Query{Source: "maps"}, func(e api.WatchEvent) error {
		if e.Type == api.WatchListed {
			listed = true
		} else if err := all.take(e.Type, parse(t, "configmaps", string(e.Object))); err != nil {
			t.Error(err)
		}
		n++
		if done = listed && all[event.Key{Namespace: "one", Name: "end"}] != nil; done || n > 30 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
		return true
	}
	if !done {
		return false
	}
	found := w.objects.Load().catalog.Lookup("maps", "", "")
	if len(found) != len(all) {
		t.Errorf("the copy has %d objects, want %d", len(all), len(found))
	}
	for _, o := range found {
		if c := all[o.Key()]; c == nil || c.ResourceVersion() != o.ResourceVersion() {
			t.Errorf("the copy has %v, want %s in version %s", c, o, o.ResourceVersion())
		}
	}
	return true
}

// passing adds an object to a store, and removes it.
func (w *watched) passing(t *testing.T) weak.Pointer[event.Object] {
	t.Helper()
	store := w.objects.Load().stores["maps"][0]
	o := parse(t, "configmaps", `{"metadata":{"name":"passing","namespace":"one","uid":"p"}}`)
	store.Put(o)
	store.Delete(o.Key())
	return weak.Make(o)
}
