package router

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/kubestatus"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// objectRoutes are the routes that are objects of the cluster.
type objectRoutes struct {
	watcher *kubestatus.Watcher
	changes changes
	writer  *kubestatus.Writer

	ungranted *kubestatus.Ungranted

	given map[*config.Fragment]*kubestatus.Object // of the last read of the configuration
	waits bool                                    // a change waits until the file is written
	saved []kubestatus.Saved                      // as in the state folder, unless old is set
	old   bool                                    // the state folder has them in a file of an earlier version
	now   atomic.Pointer[[]objectRoute]
	grant atomic.Pointer[config.Grant] // of Routes; nil: there is none
}

// changes are those of the objects; see [kubestatus.Watcher].
type changes interface {
	Changed() <-chan struct{}
	Worked(d time.Duration)
}

// objectRoute is an object as the router has compiled it.
type objectRoute struct {
	object  *kubestatus.Object
	id      string // of the route; empty: none runs
	problem string
	sources []string
	sinks   []string
}

// restore adds the objects of the last run to the input of a start. It returns the state folder if
// it had to open it; nil: opening it again reports the reason.
func (o *objectRoutes) restore(in *compile.Input, cfg *config.Config, opts Options) *engine.State {
	if cfg.CustomResources == (config.CustomResources{}) || cfg.State.Dir == "" {
		return nil
	}
	folder, err := engine.OpenState(cfg.State, opts.Dependencies.Disk, opts.term.shipping(), opts.Log)
	if err != nil {
		return nil
	}
	records, err := folder.Objects()
	if err == nil {
		o.saved, err = kubestatus.Decode(records)
	}
	if err != nil {
		opts.Log.Warn("the routes of objects wait for the API server, because those of the last run cannot be read", "err", err)
	}
	if len(records) == 0 {
		o.saved = kubestatus.LoadFormer(cfg.State.Dir, opts.Log)
	}
	o.old = true // or its rest
	in.Fragments = o.fragments(objectsOf(o.saved))
	for i, f := range in.Fragments {
		f.Former = o.saved[i].Accepted
	}
	return folder
}

func objectsOf(saved []kubestatus.Saved) (objects []*kubestatus.Object) {
	for _, s := range saved {
		objects = append(objects, s.Object)
	}
	return objects
}

// open makes the watcher and the writer. Neither runs yet.
func (o *objectRoutes) open(r *router) {
	o.watcher = kubestatus.New(kubestatus.Config{
		Client: r.client, Cluster: r.Set.Plan.Config.Cluster.Name, Metrics: r.Metrics, Log: r.Log,
	}, objectsOf(o.saved))
	o.changes = o.watcher
	o.writer = kubestatus.NewWriter(r.API, r.Log, r.opts.clock().Now)
	o.ungranted = kubestatus.NewUngranted(r.API, r.client.Allowed, r.Log, r.opts.clock().Now)
}

// apply reports whether a change of objects can be applied now. If the configuration file is being
// written, it waits for the next look at the file.
func (o *objectRoutes) apply(file *watchedFile) bool {
	o.waits = !file.same()
	return !o.waits
}

// fragments returns the objects as fragments of the configuration.
func (o *objectRoutes) fragments(objects []*kubestatus.Object) (all []*config.Fragment) {
	o.given = make(map[*config.Fragment]*kubestatus.Object, len(objects))
	for _, object := range objects {
		f := &config.Fragment{
			Name: object.Key.String(), Data: object.Text, Object: &config.ObjectRef{Namespace: object.Namespace, Name: object.Name, UID: object.UID},
		}
		o.given[f] = object
		all = append(all, f)
	}
	return all
}

// useObjects is called with the plan that runs now. It reports the objects with mistakes that are
// new, and saves the objects for a start without the API server.
func (r *router) useObjects(ctx context.Context, plan *compile.Plan) {
	o := &r.fromObjects
	var now []objectRoute
	before := make(map[kubestatus.Key]objectRoute)
	if last := o.now.Load(); last != nil {
		for _, one := range *last {
			before[one.object.Key] = one
		}
	}
	for _, f := range plan.Config.Fragments {
		object := o.given[f]
		if object == nil {
			continue // an included file
		}
		one := objectRoute{object: object, problem: problemOf(plan, f)}
		if i := slices.IndexFunc(plan.Routes, func(p compile.Route) bool { return p.Fragment == f }); i >= 0 {
			route := &plan.Routes[i]
			one.id, one.sources = route.ID, route.From
			for k := range route.To {
				one.sinks = append(one.sinks, route.To[k].Sink)
			}
		}
		if was := before[object.Key]; one.problem != "" && was.problem != one.problem {
			r.Log.Warn("an object with a route was rejected", "object", object.Key.String(), "former", one.id != "", "err", one.problem)
		}
		now = append(now, one)
	}
	// The status of the objects is written from the new list.
	o.now.Store(&now)
	o.writer.Wake()
	r.saveObjects(o.toSave(plan))
	r.followObjects(ctx, plan.Config)
}

// toSave returns the objects that a start without the API server needs. A text beyond a limit is
// not saved, nor one without a grant: their size has no bound.
func (o *objectRoutes) toSave(plan *compile.Plan) (all []kubestatus.Saved) {
	for _, f := range plan.Config.Fragments {
		object := o.given[f]
		if object == nil {
			continue // an included file
		}
		text, accepted := plan.Accepted[f.Key()]
		if f.Config == nil { // its present text has mistakes
			if !accepted {
				continue
			}
			object = object.Former(text)
		}
		all = append(all, kubestatus.Saved{Object: object, Accepted: text})
	}
	return all
}

// saveObjects writes the objects to the state folder if they differ.
func (r *router) saveObjects(next []kubestatus.Saved) {
	o := &r.fromObjects
	same := slices.EqualFunc(o.saved, next, func(a, b kubestatus.Saved) bool {
		return a.Key == b.Key && a.UID == b.UID && a.Generation == b.Generation && bytes.Equal(a.Accepted, b.Accepted)
	})
	if r.State == nil || same && !o.old {
		return
	}
	records, err := kubestatus.Encode(next)
	if err == nil {
		err = r.State.SetObjects(records)
	}
	if err == nil && o.old {
		err = kubestatus.RemoveFormer(r.Set.Plan.Config.State.Dir)
	}
	if err != nil {
		r.Log.Warn("the objects with routes are not saved: a start without the API server lacks the last changes of them", "err", err)
		return
	}
	o.saved, o.old = next, false
}

// followObjects watches the objects that the configuration grants something.
func (r *router) followObjects(ctx context.Context, cfg *config.Config) {
	var watched kubestatus.Watched
	if g := cfg.CustomResources.Routes; g != nil {
		if watched.Routes = g.Namespaces; g.AllNamespaces() {
			watched.Routes = []string{""}
		}
	}
	r.fromObjects.grant.Store(cfg.CustomResources.Routes)
	watched.ClusterRoutes = cfg.CustomResources.ClusterRoutes != nil
	r.fromObjects.watcher.Follow(ctx, watched)
}

// problemOf returns the first mistake of an object, with its position; empty: there is none.
func problemOf(plan *compile.Plan, f *config.Fragment) string {
	i := slices.IndexFunc(plan.Rejected, func(one compile.Rejected) bool { return one.Fragment == f })
	if i < 0 {
		return ""
	}
	problems := plan.Rejected[i].Problems.Sorted()
	p := problems[0]
	text := p.Message
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("line %d, column %d of kubectl get %s -o yaml: %s", p.Line, p.Column, f.Name, text)
	}
	if n := len(problems) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// objectStates returns the states of the routes of the objects, for their status.
func (r *router) objectStates() map[*kubestatus.Object]kubestatus.State {
	now := r.fromObjects.now.Load()
	if now == nil || len(*now) == 0 {
		return nil
	}
	compiled := make(map[kubestatus.Key]*objectRoute, len(*now))
	for i := range *now {
		compiled[(*now)[i].object.Key] = &(*now)[i]
	}
	paused, late, down, synced := make(map[string]bool), make(map[string]bool), make(map[string]bool), make(map[string]bool)
	counts := make(map[string]*kubestatus.Deltas)
	for _, s := range r.Pipeline.Status() {
		paused[s.ID], late[s.ID] = s.Paused != "", s.Deferred
		counts[s.ID] = deltasOf(&s.Counts)
	}
	for _, s := range r.Pipeline.Unavailable() {
		down[s.Name] = true
	}
	for _, s := range r.Factory.Statuses() {
		synced[s.Source] = s.Synced
	}
	states := make(map[*kubestatus.Object]kubestatus.State, len(compiled))
	for _, object := range r.fromObjects.watcher.Objects() {
		c := compiled[object.Key]
		if c == nil || c.object.UID != object.UID {
			continue // the next reload knows it
		}
		s := kubestatus.State{Generation: c.object.Generation, Problem: c.problem, Runs: c.id != "", Paused: paused[c.id], Deferred: late[c.id], Deltas: counts[c.id]}
		// Backward, so that the first one of the configuration is named.
		for _, name := range slices.Backward(c.sources) {
			if !synced[name] {
				s.NotSynced = name
			}
		}
		for _, name := range slices.Backward(c.sinks) {
			if down[name] {
				s.Unavailable = name
			}
		}
		s.DeadLetters = r.State != nil && c.id != "" && r.letters.Count(c.id) > 0
		states[object] = s
	}
	return states
}

// deltasOf returns the counts of a route for the status of its object. The workers of a fleet take
// no routes of objects.
func deltasOf(n *pipeline.Counts) *kubestatus.Deltas {
	return &kubestatus.Deltas{
		Since: metav1.NewTime(n.Since.Truncate(time.Second)), Matched: n.Matched, Delivered: n.Delivered, HeldBack: n.Suppressed, Coalesced: n.Coalesced,
		Dropped: n.Dropped, Failed: n.Failed, DeadLettered: n.DeadLettered, Shadowed: n.Shadowed,
	}
}

// grants returns the function that reports whether the Routes of a namespace are used; nil: there
// is no grant for some namespaces only.
func (o *objectRoutes) grants() func(namespace string) bool {
	g := o.grant.Load()
	if g == nil || g.AllNamespaces() {
		return nil
	}
	return func(namespace string) bool { return slices.Contains(g.Namespaces, namespace) }
}

// objectsRead returns the objects with routes that the configuration grants something. Those of
// other namespaces are not watched, see [kubestatus.Ungranted]: the status of the router has
// them.
func objectsRead(cfg *config.Config) (all []api.ObjectsStatus) {
	of := &cfg.CustomResources
	if of.Routes == nil && of.ClusterRoutes == nil {
		return nil
	}
	routes, clusterRoutes := api.ObjectsStatus{Kind: "Route"}, api.ObjectsStatus{Kind: "ClusterRoute"}
	if of.Routes != nil {
		routes.Namespaces = of.Routes.Namespaces
	}
	if of.ClusterRoutes != nil {
		clusterRoutes.Namespaces = []string{config.AllNamespaces}
	}
	return []api.ObjectsStatus{routes, clusterRoutes}
}

// checks returns the checks of the watches of objects. They do not make the router unready: the
// other routes run.
func (o *objectRoutes) checks() (checks []api.Check) {
	for _, s := range o.watcher.Statuses() {
		checks = append(checks, api.Check{Name: "customResources/" + s.Source, OK: s.Synced && s.Reason == "", Message: s.Reason})
	}
	return checks
}
