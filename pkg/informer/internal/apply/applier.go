package apply

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/reflector"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Downstream is informer.Downstream.
type Downstream interface {
	Admit(ctx context.Context, d *event.Delta) (event.Admission, error)
}

// Admit has the signature of the method of [Downstream].
type Admit func(ctx context.Context, d *event.Delta) (event.Admission, error)

// Config has the dependencies of an [Applier].
type Config struct {
	Watch      string // its name in logs
	Log        *slog.Logger
	Clock      timer.Clock
	Downstream Downstream
	// TakesInitial: see informer.Config.
	TakesInitial func(source string) bool
	// IdentityOnly: only the identity of an object is kept.
	IdentityOnly bool
	// Common returns the part of an object that has been kept of all objects, also if the kept
	// fields have changed; nil: they do not change.
	Common func(o *event.Object) string
	// Selective: an object can leave the watch without being deleted, and the API server then
	// reports it as deleted.
	Selective bool
	// Selects has the namespaces that this watch finds; nil: it is no watch of namespaces.
	Selects *Namespaces
	// Within has the namespaces whose objects the watch keeps; nil: it keeps all.
	Within *Namespaces
	Late   *reflector.Late // with Within

	State   *persist.State
	Sources *Sources
	Health  *reflector.Health
	Plan    *reflector.Plan
	Relists *reflector.Relists
	Backoff backoff.Policy // of the questions about objects that left the watch
	Inquiry *reflector.Inquiry
}

// Applier makes deltas of the answers of the API server and applies them. It implements
// reflector.Sink. The turn guards its fields; it is held while a delta is admitted and applied. own
// is taken before the turn and held for one answer as a whole, for which the turn may be taken
// several times: answers of the watch and changes of its namespaces do not mix.
type Applier struct {
	cfg  Config
	own  turn
	turn turn
	// the part that keeps only the objects in some namespaces; nil: there is none
	within *within
	held   *held // the changes that wait for an answer of the API server

	epoch      int // of the factory, when the watch was added; -1: in a former run
	admissions []event.Admission
	wanted     []*event.Delta // the deltas of the admissions
	// listed: there was a complete list. absent: the resource was confirmed not to exist before
	// that.
	listed, absent bool
	initial        atomic.Bool  // neither of them, for Known
	applied        atomic.Int64 // the number of changes so far
	gone           deletes      // the last events of objects that are gone
	// again has the keys of which a former run held back events: those that come again after the
	// first one of a key are no repetitions.
	again map[event.Key]bool
}

// New returns an Applier of a watch that was added in an epoch of its factory.
func New(cfg Config, epoch int) *Applier {
	a := &Applier{cfg: cfg, own: newTurn(), turn: newTurn(), again: make(map[event.Key]bool), epoch: epoch}
	a.held = newHeld(a, cfg.Backoff)
	a.initial.Store(true)
	if cfg.Within != nil {
		a.within = &within{cfg.Within, a, cfg.Late}
	}
	return a
}

// Restore says that a former run had the watch, and whether it had a complete list. It is called
// before anything is applied.
func (a *Applier) Restore(listed bool) {
	a.listed, a.epoch = listed, -1
	a.initial.Store(!listed)
}

// Hold holds the watch between two deltas, until release is called. It returns false if ctx is done
// before.
func (a *Applier) Hold(ctx context.Context) (release func(), ok bool) {
	return a.turn.give, a.turn.take(ctx)
}

// Known returns the object of the store if o is equal to it, so that a relist does not keep every
// object twice. It reduces an object to its identity if nothing needs the rest, so that a first
// list does not keep more than the store.
func (a *Applier) Known(o *event.Object) *event.Object {
	old := a.cfg.State.Get(o.Key())
	if old == nil {
		if a.cfg.IdentityOnly && a.initial.Load() && !a.cfg.takesInitial() {
			return wire.IdentityOf(o)
		}
		return o
	}
	if o.ResourceVersion() != "" && old.Same(o) && !a.differs(old, o) && !isIncomplete(a, old, o) {
		return old
	}
	return o
}

// takesInitial reports whether the objects of initial deltas are needed.
func (c *Config) takesInitial() bool {
	return c.TakesInitial == nil || slices.ContainsFunc(c.Sources.All(), func(s *Source) bool { return c.TakesInitial(s.Name) })
}

// Reduced counts and logs an object that is passed on as its identity and labels only.
func (a *Applier) Reduced(e *wire.ObjectError) {
	for _, s := range a.cfg.Sources.All() {
		s.bad.Add(1)
		a.cfg.Log.Error("object cannot be read: only its identity, its labels and an annotation are passed on", "annotation", wire.Unreadable,
			"source", s.Name, "object", e.Key.String(), "err", e.Reason)
	}
}

// LeftOut counts and logs an object that could not be read.
func (a *Applier) LeftOut(e *wire.ObjectError) {
	for _, s := range a.cfg.Sources.All() {
		s.bad.Add(1)
		a.cfg.Log.Error("object cannot be read and is left out", "source", s.Name, "object", e.Key.String(), "err", e.Reason)
	}
}

// differs reports whether two objects with one uid and resourceVersion have different contents: a
// restored backup issues the same resourceVersions again, and of some objects only the identity was
// saved. If the watch keeps identities only, a difference cannot be detected.
func (a *Applier) differs(old, o *event.Object) bool {
	if a.cfg.IdentityOnly || old.Raw() == o.Raw() {
		return false
	}
	return a.cfg.Common == nil || a.cfg.Common(old) != a.cfg.Common(o)
}

// change is a delta before it is addressed to the sources.
type change struct {
	op       event.Op
	before   *event.Object // the object of the store; nil for an intent
	old, now *event.Object // the delta's Old and New
	initial  bool
	stale    bool
	listed   bool
	applied  string // the resourceVersion of the event; empty: it is none
}

// apply admits the change for each source, and then applies it in one step. The turn is held. It
// returns false, without a change, if ctx is done.
func (a *Applier) apply(ctx context.Context, c change) bool {
	kept := c.now
	if a.cfg.IdentityOnly && c.now != nil {
		kept = wire.IdentityOf(c.now)
		if c.op == event.Updated {
			c.old = nil
		}
	}
	// The watches of a namespace's objects follow before its own delta is applied: after a crash in
	// between, the event comes again.
	if a.cfg.Selects != nil && !a.cfg.Selects.follow(ctx, c) {
		return false
	}
	c.listed = c.listed || a.cfg.State.Position.Relisting()
	seen := a.cfg.Clock.Now()
	// All routes of all sources have room before any gets the delta.
	a.admissions, a.wanted = a.admissions[:0], a.wanted[:0]
	for _, s := range a.cfg.Sources.All() {
		if !a.admit(ctx, s, c, seen) {
			return false
		}
	}
	a.cfg.State.Apply(&persist.Change{
		Before: c.before, Now: kept, Gone: c.old, Added: c.op == event.Added, Applied: c.applied, Admissions: a.admissions, Wanted: a.wanted,
	})
	a.applied.Add(1)
	a.cfg.Sources.count(c.op)
	return true
}

// admit waits for room for the change as a delta of s. It returns false if ctx is done.
func (a *Applier) admit(ctx context.Context, s *Source, c change, seen time.Time) bool {
	if ctx.Err() != nil {
		return false
	}
	d := &event.Delta{
		Source: s.Name, Op: c.op, Old: c.old, New: c.now, Initial: c.initial, Stale: c.stale, Seen: seen,
	}
	state := transit.Of(d)
	state.Listed, state.Selective = c.listed, a.returns(c)
	if c.initial {
		state.Epoch = a.epoch
	}
	admission, err := a.cfg.Downstream.Admit(ctx, d)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		a.cfg.Log.Error("delta was not admitted and is lost", "delta", d.String(), "err", err)
	}
	if admission != nil {
		a.admissions, a.wanted = append(a.admissions, admission), append(a.wanted, d)
	}
	return true
}

// returns reports whether an added object may have existed before: it or its namespace left the
// selector, or its deltas were delivered before a crash.
func (a *Applier) returns(c change) bool {
	return c.op == event.Added && (a.cfg.Selective || a.cfg.Within != nil || a.cfg.State.Intent(c.now.UID()) != nil || a.cfg.State.Delivered(c.now))
}

// setSynced sets whether the store has all objects.
func (a *Applier) setSynced(synced bool) {
	a.cfg.Health.SetSynced(synced)
	a.cfg.Sources.refresh()
}

// turn is a lock whose wait ends with a context: its holder may be waiting for room in a queue.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take acquires the turn. It returns false, without the turn, if ctx is done first.
func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) give() { <-t }
