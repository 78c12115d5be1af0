package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/kubestatus"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

const granting = `version: 1
cluster: {name: NAME}
sources: {maps: {resource: v1/configmaps}}
sinks: {out: {fake: {}}}
customResources: {routes: {namespaces: [ns], sources: [maps], sinks: [out]}}
`

// planOf makes a plan of a file and objects. Each check of the sink takes some time.
func planOf(t *testing.T, path string, o *objectRoutes, takes time.Duration, objects ...*kubestatus.Object) (*compile.Plan, compile.Components) {
	t.Helper()
	components := compile.Components{Sinks: []plugins.SinkKind{fakekind.Sink{
		Definition: fakekind.Define("fake"), CheckFunc: func(config.Node) config.Problems { time.Sleep(takes); return nil },
	}}}
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") }
	in := inputOf(Options{Config: path})
	in.Fragments = o.fragments(objects)
	for _, f := range in.Fragments {
		for _, s := range o.saved {
			if s.UID == o.given[f].UID {
				f.Former = s.Accepted
			}
		}
	}
	p, problems := (*compile.Plans)(nil).Make(t.Context(), in, components, alone)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p, components
}

func fileOf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(granting), 0o600))
	return path
}

// fakeChanges reports changes of objects when the test wants it.
type fakeChanges struct {
	changed chan struct{}
	worked  chan time.Duration
}

func (f fakeChanges) Changed() <-chan struct{} { return f.changed }
func (f fakeChanges) Worked(d time.Duration)   { f.worked <- d }

// TestWork shows that the time of a reload because of objects is reported, so that the next ones
// wait: also if the change had to wait for the file. Other reloads are not reported.
func TestWork(t *testing.T) {
	path := fileOf(t)
	synctest.Test(t, func(t *testing.T) {
		const takes = 3 * time.Second
		p, components := planOf(t, path, &objectRoutes{}, takes)
		// the reload is refused after the plan is made
		other := strings.ReplaceAll(granting, "NAME", "other")
		must.Succeed(t, os.WriteFile(path, []byte(other), 0o600))
		env := &engine.Env{Components: components, Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}
		signal, changes := make(chan os.Signal), fakeChanges{make(chan struct{}), make(chan time.Duration, 1)}
		r := &router{Engine: engine.New(env, p), opts: Options{Config: path, Components: components, Log: env.Log, Reload: signal}}
		r.fromObjects.watcher = kubestatus.New(kubestatus.Config{}, nil)
		r.fromObjects.changes = changes
		r.reloads.file, r.reloads.ended = newWatchedFile(path), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go r.watchConfig(ctx)
		defer func() { cancel(); <-r.reloads.ended }()
		worked := func(when string) {
			t.Helper()
			select {
			case d := <-changes.worked:
				if d < takes || r.reloads.failed.Load() == nil {
					t.Errorf("%s: the work took %s", when, d)
				}
			case <-time.After(time.Minute): // of the bubble's clock
				t.Errorf("%s: no work is reported", when)
			}
		}
		changes.changed <- struct{}{}
		worked("a change")

		must.Succeed(t, os.WriteFile(path, []byte(other+"# half"), 0o600))
		changes.changed <- struct{}{}
		synctest.Wait()
		if !r.fromObjects.waits {
			t.Error("the change does not wait for the file")
		}
		must.Succeed(t, os.WriteFile(path, []byte(other), 0o600))
		worked("a change that waited")

		signal <- os.Interrupt
		time.Sleep(2 * takes) // of the bubble's clock
		select {
		case d := <-changes.worked:
			t.Errorf("a reload on a signal is work of %s for objects", d)
		default:
		}
	})
}

// objectOf returns a Route with the number as its name and age.
func objectOf(n, size int) *kubestatus.Object {
	return &kubestatus.Object{
		Key: kubestatus.Key{Kind: kubestatus.Route, Namespace: "ns", Name: fmt.Sprintf("r%04d", n)}, UID: fmt.Sprint(n), Generation: 1,
		Text: fmt.Appendf(nil, "metadata: {name: r%04d, namespace: ns}\nspec: {from: [maps], to: [out]}\n%s", n, strings.Repeat("# large\n", size/8)),
	}
}

// TestSavedObjects shows which objects are saved: those with mistakes too, but none without a grant
// or beyond a limit. If an object has grown beyond a limit, the former text that runs is saved.
func TestSavedObjects(t *testing.T) {
	path, o := fileOf(t), &objectRoutes{}
	var all []*kubestatus.Object
	for n := range 1002 {
		all = append(all, objectOf(n, 0))
	}
	all[2].Text = []byte("metadata: {name: r0002, namespace: ns}\nspec: {from: [mops], to: [out]}\n")
	strange := objectOf(2000, 0)
	strange.Namespace = "other"
	texts := 0
	saved := func() []kubestatus.Saved {
		t.Helper()
		p, _ := planOf(t, path, o, 0, append(all, strange)...)
		o.saved, texts = o.toSave(p), 0
		for _, s := range o.saved {
			if s.Accepted != nil {
				texts++
			}
		}
		return o.saved
	}
	if s := saved(); len(s) != 1000 || texts != 999 || s[999].Object != all[999] {
		t.Errorf("%d objects are saved, and %d texts", len(s), texts)
	}
	for n := range 8 {
		all[n] = objectOf(n, 1<<20-200)
		all[n].Generation = 2
	}
	s := saved()
	size := 0
	for _, object := range s {
		size += len(object.Text)
	}
	if len(s) != 1000 || texts != 1000 || size > 5<<20 {
		t.Errorf("%d objects with %d bytes are saved, and %d texts", len(s), size, texts)
	}
	grown := s[7]
	if grown.UID != "7" || grown.Generation == all[7].Generation || len(grown.Text) > 200 {
		t.Errorf("an object that has grown: %+v", grown.Object)
	}
	all = objectsOf(s) // as a start without the API server
	if p, _ := planOf(t, path, o, 0, all...); len(p.Routes) != 1000 {
		t.Errorf("after a start: %d routes", len(p.Routes))
	}
}

// TestObjectsInStatus shows that the status names the rejected objects of each namespace, and the
// namespaces whose objects have a grant.
func TestObjectsInStatus(t *testing.T) {
	wrong := func(n int) *kubestatus.Object {
		o := objectOf(n, 0)
		o.Text = fmt.Appendf(nil, "metadata: {name: r%04d, namespace: ns}\nspec: {from: [mops], to: [out]}\n", n)
		return o
	}
	p, _ := planOf(t, fileOf(t), &objectRoutes{}, 0, objectOf(1, 0), wrong(2), wrong(3))
	r := &rejections{}
	r.now.Store(&p.Rejected)
	checks := r.checks()
	if len(checks) != 1 || checks[0].Name != "customResources/ns" || checks[0].OK || checks[0].Holds {
		t.Fatalf("%+v", checks)
	}
	const want = `route/r0002 -n ns:2:15: spec.from[0]: source "mops" is unknown or not granted`
	if m := checks[0].Message; !strings.HasPrefix(m, want) || !strings.HasSuffix(m, "; its routes are disabled (2 objects have mistakes)") {
		t.Error(m)
	}
	got, err := json.Marshal(objectsRead(p.Config))
	must.Succeed(t, err)
	if want := `[{"kind":"Route","namespaces":["ns"]},{"kind":"ClusterRoute","namespaces":null}]`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// stateOptions returns the options of a router with a state folder, and without an API server.
func stateOptions(t *testing.T, more string) (opts Options, dir string) {
	t.Helper()
	folder := t.TempDir()
	path, dir := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "state")
	kubeconfig := filepath.Join(folder, "kubeconfig")
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600))
	text := strings.Replace(granting, "{name: NAME}", fmt.Sprintf("{name: test, kubeconfig: %q}\nstate: {dir: %q}", kubeconfig, dir), 1)
	must.Succeed(t, os.WriteFile(path, []byte(text+more), 0o600))
	return Options{
		Config: path, Log: slog.New(slog.DiscardHandler), Stdout: io.Discard,
		Components: compile.Components{Sinks: []plugins.SinkKind{fakekind.Sink{
			Definition: fakekind.Define("fake"), OpenFunc: func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) { return &nullSink{}, nil },
		}}},
	}, dir
}

type nullSink struct{}

func (*nullSink) Write(context.Context, []event.Event) []error { return nil }
func (*nullSink) Close(context.Context) error                  { return nil }

// TestObjectsInState shows that a start without the API server runs the objects of the last run,
// those with mistakes with their former text, and that the file of an earlier version is read and
// replaced.
func TestObjectsInState(t *testing.T) {
	// Guarantee: objects-offline
	opts, dir := stateOptions(t, "")
	must.Succeed(t, os.Mkdir(dir, 0o700))
	file := filepath.Join(dir, "customresources.json")
	good, bad := objectOf(1, 0), objectOf(2, 0)
	former := bad.Text
	bad.Text = []byte(strings.Replace(string(bad.Text), "maps", "mops", 1))
	text, err := json.Marshal(map[string]any{
		"Objects": []*kubestatus.Object{good, bad}, "Accepted": map[string][]byte{
			"ns\x00" + good.Key.String() + "\x00" + good.UID: good.Text, "ns\x00" + bad.Key.String() + "\x00" + bad.UID: former,
		},
	})
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, text, 0o600))
	for _, run := range []string{"the first start", "the second start"} {
		r, err := start(t, opts)
		must.Succeed(t, err)
		var names []string
		for _, p := range r.Set.Plan.Routes {
			names = append(names, p.Name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"ns/r0001", "ns/r0002"}) || len(r.Set.Plan.Rejected) != 1 {
			t.Errorf("%s: routes %q, %v", run, names, r.Set.Plan.Mistakes())
		}
		r.saveObjects(r.fromObjects.toSave(r.Set.Plan))
		must.Succeed(t, r.Close(t.Context()))
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the file of an earlier version is still there: %v", run, err)
		}
	}
	r, err := start(t, opts)
	must.Succeed(t, err)
	r.saveObjects(nil)
	must.Succeed(t, r.Close(t.Context()))
	r, err = start(t, opts)
	must.Succeed(t, err)
	if len(r.Set.Plan.Routes) != 0 {
		t.Errorf("deleted objects run: %d", len(r.Set.Plan.Routes))
	}
	must.Succeed(t, r.Close(t.Context()))
}

// start opens a router, which does not run.
func start(t *testing.T, opts Options) (*router, error) {
	t.Helper()
	first, err := read(t.Context(), opts)
	must.Succeed(t, err)
	return begin(t.Context(), opts, first)
}

// TestFailedStart shows that a start that fails releases the state folder.
func TestFailedStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for _, c := range []struct {
		name, more string
		cluster    bool
	}{{"a mistake", "color: red\n", true}, {"no cluster", "", false}, {"no address", fmt.Sprintf("listen: {probes: %q}\n", taken.Addr()), true}} {
		opts, dir := stateOptions(t, c.more)
		if !c.cluster {
			must.Succeed(t, os.Remove(filepath.Join(filepath.Dir(opts.Config), "kubeconfig")))
		}
		_, err := start(t, opts)
		if err == nil {
			t.Fatalf("%s: it starts", c.name)
		}
		folder, err := engine.OpenState(config.State{Dir: dir}, nil, engine.Shipping{}, opts.Log)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		must.Succeed(t, folder.Close(t.Context()))
	}
}
