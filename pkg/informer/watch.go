package informer

import (
	"context"
	"log/slog"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
)

// Watch is one watch: what it has seen, how it hears of changes, and how it applies them.
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
	run     func(ctx context.Context) // watches until ctx is done

	// For the factory, under its lock. stop is nil before the watch runs.
	stop    context.CancelFunc
	stopped chan struct{}
	resyncs map[*source]context.CancelFunc
}

func (f *Factory) newWatch(spec Spec, store Cache, epoch int) *Watch {
	w := &Watch{
		spec: spec, name: nameOf(&spec),
		target: &reflector.Target{
			GVR: spec.Resource, Cluster: f.cfg.Cluster, Namespace: spec.Namespace,
			LabelSelector: spec.LabelSelector, FieldSelector: spec.FieldSelector,
			Format: spec.format(), Metadata: spec.identityFormat(),
		},
		plan: &reflector.Plan{}, relists: &reflector.Relists{}, sources: &apply.Sources{},
	}
	w.target.SetKind("")
	w.sources.Set(nil)
	w.health = reflector.NewHealth(w.name, f.cfg.Log)
	w.state = persist.New(w.persisted(f, store))
	reflected := &reflector.Config{
		Name: w.name, Log: f.cfg.Log, Client: f.cfg.Client.server(), Identity: f.identity,
		Target: w.target, State: w.state, Health: w.health, Plan: w.plan, Relists: w.relists,
		PageSize: f.cfg.PageSize, Backoff: f.cfg.Backoff, ProbeInterval: f.cfg.ProbeInterval, Silence: f.cfg.Silence,
		BookmarkWait: f.cfg.BookmarkWait,
	}
	inquiry := reflector.NewInquiry(reflected)
	w.applier = apply.New(apply.Config{
		Watch: w.name, Log: f.cfg.Log, Clock: f.cfg.Clock, Admit: f.admit,
		IdentityOnly: spec.identityOnly(), Selective: spec.Selective(),
		State: w.state, Sources: w.sources, Health: w.health, Plan: w.plan, Relists: w.relists, Inquiry: inquiry,
	}, epoch)
	reflected.Sink = w.applier
	w.run = reflector.New(reflected, inquiry).Run
	return w
}

// persisted returns the configuration of the watch's state.
func (w *Watch) persisted(f *Factory, store Cache) persist.Config {
	id := w.spec.ID()
	cfg := persist.Config{
		ID: id, Store: store, IdentityOnly: w.spec.identityOnly(), Measure: w.sources.Measure, Learn: w.target.LearnKind,
		// The state file was whole when it was opened, and is not any more.
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

// Spec returns what is watched.
func (w *Watch) Spec() Spec { return w.spec }

// Resource returns what is watched, as all objects of the watch have it. Its Kind may be empty
// until discovery has answered.
func (w *Watch) Resource() *event.Resource { return w.target.Resource() }

// Applied returns the resourceVersion up to which everything was applied; empty before the first
// list, and 0 if the resource was found not to exist before it.
func (w *Watch) Applied() string { return w.state.Position.Applied() }

// Cut calls f at a moment when the store, what was committed downstream and fed agree with each
// other, and holds the watch there while f runs. relisting: some of a list is applied and some is
// not, so fed alone does not say how to go on.
func (w *Watch) Cut(f func(fed string, relisting bool)) { w.state.Cut(f) }

// Restore makes the watch go on from what was saved, be it nothing but that there was such a watch.
// It is called before [Factory.Run], once. Nothing that is restored becomes a delta. The watch then
// resumes at Applied and lists nothing, and what happened meanwhile becomes deltas as if it
// happened now.
//
// Where that cannot be (the list at hand was not complete, the API server no longer knows what
// happened, has gone back in time, or is another cluster's) it lists, and the difference becomes
// deltas; what is gone is Deleted and Stale, intents too.
func (w *Watch) Restore(r Restored) {
	w.state.Restore(&r)
	w.applier.Restore(r.Listed || r.Applied != "")
	w.plan.Restore(w.state.CanResume())
}

// RestoreObject is Restore for one state, and comes before it. It may be called from several
// goroutines at the same time, which is how many objects are restored fast.
func (w *Watch) RestoreObject(o *event.Object) { w.state.RestoreObject(o) }

// Dirty hands over what changed since the last call, for good: who cannot write it keeps it, and
// writes it before or together with what the next call returns. Without a Gate nothing is kept, and
// nothing has changed.
func (w *Watch) Dirty() Changes { return persist.HandOver([]*persist.State{w.state}, func() {})[0] }

// Saved says that everything that Dirty has handed over so far is on disk. Call it after every
// write that succeeded, before the next Dirty.
func (w *Watch) Saved() { w.state.Saved() }

// QuietKlog sends what client-go logs to log, without the objects that it likes to add: of the
// values only texts, numbers, times and errors are kept, of all others the type. client-go's
// logging is global; restore gives it back.
func QuietKlog(log *slog.Logger) (restore func()) { return reflector.QuietKlog(log) }
