package informer

import (
	"context"
	"log/slog"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

// Watch is one watch of a resource: its state, the Reflector that supplies it, and the applier of
// its changes.
type Watch struct {
	spec Spec
	name string // in logs

	target  *reflector.Target
	state   *persist.State
	health  *reflector.Health
	plan    *reflector.Plan
	relists *reflector.Relists
	applier *apply.Applier
	sources *apply.Sources
	// selection has the namespaces that the watch finds, finder is the watch that finds the
	// namespaces of this one; nil: the watch has no such part.
	selection *apply.Namespaces
	finder    *Watch
	hasClient bool
	keeping   keeping
	run       func(ctx context.Context) // watches until ctx is done

	// The factory's fields, under its lock. stop is nil before the watch runs.
	stop    context.CancelFunc
	stopped chan struct{}
	resyncs map[*source]context.CancelFunc
}

// newWatch makes a watch. among has the watches before it, of which one finds its namespaces.
func (f *Factory) newWatch(spec Spec, store Cache, epoch int, among []*Watch) *Watch {
	w := &Watch{
		spec: spec, name: nameOf(&spec), target: &reflector.Target{
			GVR: spec.Resource, Cluster: f.cfg.Cluster, Namespace: spec.Namespace,
			LabelSelector: spec.LabelSelector, FieldSelector: spec.FieldSelector, Metadata: spec.identityFormat(),
		},
		plan: &reflector.Plan{}, relists: &reflector.Relists{}, sources: &apply.Sources{},
	}
	w.hasClient = f.cfg.Client != nil
	if w.hasClient { // injected objects are in selected namespaces
		w.finder = finderOf(&spec, among)
	}
	var late *reflector.Late
	within := w.within()
	if within != nil {
		w.target.InSelected, late = true, &reflector.Late{}
	}
	if spec.finds() {
		w.selection = apply.NewNamespaces()
	}
	w.target.SetKind("")
	w.sources.Set(nil)
	w.health = reflector.NewHealth(w.name, f.cfg.Log)
	w.state = persist.New(w.persisted(f, store))
	w.keeping = newKeeping(w)
	reflected := &reflector.Config{
		Name: w.name, Log: f.cfg.Log, Client: f.cfg.Client.server(), Identity: f.identity, Probes: f.probes, Absences: f.absences,
		Target: w.target, State: w.state, Health: w.health, Plan: w.plan, Relists: w.relists,
		PageSize: f.cfg.PageSize, Backoff: f.backoff(), ProbeInterval: f.cfg.ProbeInterval, Silence: f.cfg.Silence,
		BookmarkWait: f.cfg.BookmarkWait, HeaderTimeout: f.cfg.HeaderTimeout, Unproven: f.cfg.Unproven, Late: late,
	}
	// The applier asks by the inquiry, and the Reflector passes its events to the applier.
	inquiry := reflector.NewInquiry(reflected)
	w.keeping.inquiry = inquiry
	w.applier = apply.New(apply.Config{
		Watch: w.name, Log: f.cfg.Log, Clock: f.clock, Downstream: f.cfg.Downstream, TakesInitial: f.cfg.TakesInitial,
		IdentityOnly: spec.identityOnly(), Common: w.common(), Selective: spec.filtered(), Selects: w.selection, Within: within, Late: late,
		State: w.state, Sources: w.sources, Health: w.health, Plan: w.plan, Relists: w.relists, Inquiry: inquiry, Backoff: f.backoff(),
	}, epoch)
	reflected.Sink = w.applier
	inner := reflector.New(reflected, inquiry)
	w.keeping.reopen = inner.Reopen
	run := inner.Run
	if spec.filtered() {
		run = func(ctx context.Context) { apply.RunAsking(ctx, w.applier, inner.Run) }
	}
	w.run = w.afterNamespaces(run)
	return w
}

// persisted returns the configuration of the watch's state.
func (w *Watch) persisted(f *Factory, store Cache) persist.Config {
	id := w.spec.ID()
	cfg := persist.Config{
		ID: id, Store: store, IdentityOnly: w.spec.identityOnly(), Measure: w.sources.Measure, Learn: w.target.LearnKind,
		// The state file was intact when it was opened, and is damaged now.
		Unreadable: func(err error) {
			f.cfg.Log.Error("saved objects cannot be read; the resource is listed", "watch", w.name, "err", err)
			w.relists.Ask()
		},
	}
	if gate := f.cfg.Gate; gate != nil {
		cfg.Gate = func(o *event.Object) <-chan struct{} { return gate(id, o) }
	}
	return cfg
}

// Spec returns the Spec of the watch.
func (w *Watch) Spec() Spec { return w.spec }

// Resource returns the resource that all objects of the watch share. Its Kind may be empty until
// discovery has answered.
func (w *Watch) Resource() *event.Resource { return w.target.Resource() }

// Applied returns the latest resourceVersion of which something is applied: everything of all
// earlier ones is, and the last events of this one may be missing. It is empty before the first
// list, and 0 if the resource did not exist until then.
func (w *Watch) Applied() string { return w.state.Position.Applied() }

// Cut calls f while the watch is held, at a moment when the store, the committed deltas and the
// applied resourceVersion agree with each other. relisting: a list is only partly applied, so the
// version alone does not say where to resume.
func (w *Watch) Cut(f func(applied string, relisting bool)) { w.state.Cut(f) }

// Restore sets the watch to its saved state, which may be empty. It is called once, before
// [Factory.Run]. The restored objects do not become deltas. The watch then resumes at Applied
// without a list, and the changes since then become deltas with the current time.
//
// The watch lists instead if the saved list was not complete, or if the API server has dropped the
// history, has gone back in time, or is another cluster. The differences become deltas; objects
// that are gone, including those of intents, are Deleted and Stale.
func (w *Watch) Restore(r Restored) {
	w.state.Restore(&r)
	w.keeping.restored(r.Kept)
	if w.selection != nil {
		for o := range w.state.All() {
			w.selection.Add(o.Key().Name)
		}
	}
	w.applier.Restore(r.Listed || r.Applied != "")
	w.plan.Restore(w.state.CanResume())
}

// RestoreObject is Restore for one object, and comes before it. It may be called concurrently,
// which speeds up the restore of many objects.
func (w *Watch) RestoreObject(o *event.Object) { w.state.RestoreObject(o) }

// Dirty hands over the changes since the last call. They are not returned again: a caller that
// fails to write them keeps them, and writes them before or together with the next ones. Without a
// Gate no changes are collected.
func (w *Watch) Dirty() Changes { return persist.BeginCut([]*persist.State{w.state}).End()[0] }

// Saved says that everything Dirty has handed over so far is on disk. It is called after every
// successful write, before the next Dirty.
func (w *Watch) Saved() { w.state.Saved() }

// QuietKlog redirects the logging of client-go to log, without the objects that client-go adds: it
// keeps only texts, numbers, times and errors, and of all other values the type. client-go's
// logging is global; restore resets it.
func QuietKlog(log *slog.Logger) (restore func()) { return reflector.QuietKlog(log) }
