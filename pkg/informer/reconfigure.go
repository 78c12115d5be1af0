package informer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/apply"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

// Wanted is a wanted watch with its sources.
type Wanted struct {
	Spec    Spec
	Store   Cache // of a new watch; an existing one keeps its own
	Sources []Source
	// Kept has the fields that the objects of a watch with `cache: auto` have, beside their
	// identity: a path of keys stands for everything below it, and continues in every element of a
	// list. nil: all.
	Kept [][]string
}

// Held is the factory at a moment when no delta of any watch is between Admit and commit, and no
// changes are being handed over to the checkpoint. It is valid until the function that received it
// returns.
type Held struct {
	watches []*Watch
	clock   timer.Clock
}

// Reconfigure replaces the set of watches by the wanted one. A watch whose Spec is wanted continues
// with its new sources, a watch whose Spec is not wanted ends, and the others are new and start
// with a list.
//
// swap is called at a moment between two deltas of every existing watch, after the sources were
// replaced. It may call the Factory and the watches through Held only. If ctx is done before that
// moment comes, because a delta is still being admitted, nothing has changed and the error says
// why. Reconfigure returns when the unwanted watches have ended.
func (f *Factory) Reconfigure(ctx context.Context, wanted []Wanted, swap func(*Held)) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	old := f.watches // only changes under changing
	release, err := hold(ctx, old)
	if err != nil {
		return err
	}
	// The watches are held between two deltas, and their states between two cuts: a cut has all of
	// the swap or nothing.
	f.mu.Lock()
	letGo := persist.Hold(statesOf(old))
	removed := f.exchange(wanted)
	swap(&Held{slices.DeleteFunc(slices.Clone(old), func(w *Watch) bool { return slices.Contains(removed, w) }), f.clock})
	letGo()
	for _, w := range removed {
		if w.stop != nil {
			w.stop()
		}
	}
	for _, w := range f.watches {
		f.start(w) //nolint:contextcheck // it runs as long as Run does
	}
	f.mu.Unlock()
	release()
	// Without the locks: a removed watch may wait for one of them before it ends.
	for _, w := range removed {
		if w.stop != nil {
			<-w.stopped
		}
	}
	narrow(ctx, f.watches, wanted)
	return nil
}

// hold holds the watches between two deltas.
func hold(ctx context.Context, watches []*Watch) (release func(), err error) {
	var held []func()
	release = func() {
		for _, letGo := range held {
			letGo()
		}
	}
	for _, w := range watches {
		letGo, ok := w.applier.Hold(ctx)
		if !ok {
			release()
			return nil, fmt.Errorf("watch of %s: a delta has waited too long for the API server", w.name)
		}
		held = append(held, letGo)
	}
	return release, nil
}

// exchange replaces the watches and sources, and returns the unwanted watches. mu is held.
func (f *Factory) exchange(wanted []Wanted) (removed []*Watch) {
	f.epoch++
	removed = f.watches
	var watches []*Watch
	attached := make(map[string][]*Watch) // by source
	configs := make(map[string]Source)
	for _, want := range wanted {
		i := slices.IndexFunc(f.watches, func(w *Watch) bool { return w.spec == want.Spec })
		var w *Watch
		if i >= 0 {
			w = f.watches[i]
			removed = slices.DeleteFunc(slices.Clone(removed), func(r *Watch) bool { return r == w })
		} else {
			w = f.newWatch(want.Spec, want.Store, f.epoch, watches)
			w.keep(want.fields())
		}
		watches = append(watches, w)
		for _, s := range want.Sources {
			attached[s.Name] = append(attached[s.Name], w)
			configs[s.Name] = s
		}
	}
	f.watches = watches
	lead(watches)
	f.exchangeSources(configs, attached)
	for _, w := range slices.Concat(watches, removed) {
		f.attach(w)
	}
	return removed
}

// exchangeSources replaces the sources by the configured ones. An unchanged source is kept.
func (f *Factory) exchangeSources(configs map[string]Source, attached map[string][]*Watch) {
	for name := range f.sources {
		if _, ok := configs[name]; !ok {
			f.cfg.Metrics.ForgetSource(name)
			delete(f.sources, name)
		}
	}
	for name, config := range configs {
		s := f.sources[name]
		if s != nil && s.config == config && sameWatches(s.watches, attached[name]) {
			continue
		}
		// A changed source is a new one, so an operation on the old one ends with ErrSourceChanged.
		s = f.newSource(config)
		for _, w := range attached[name] {
			s.add(w)
		}
		f.sources[name] = s
		// Its gauges begin with the objects that its watches have already.
		objects, bytes := 0, 0
		for _, w := range s.watches {
			for o := range w.state.All() {
				objects, bytes = objects+1, bytes+o.Size()
			}
		}
		s.Measure(objects, bytes)
		s.Refresh()
	}
}

func sameWatches(a, b []*Watch) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(w *Watch) bool { return !slices.Contains(b, w) })
}

// attach sets the sources of a watch.
func (f *Factory) attach(w *Watch) {
	var all []*source
	for _, s := range f.sources {
		if slices.Contains(s.watches, w) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *source) int { return strings.Compare(a.Name, b.Name) })
	sources := make([]*apply.Source, len(all))
	for i, s := range all {
		sources[i] = s.Source
	}
	w.sources.Set(sources)
	for s, stop := range w.resyncs {
		if !slices.Contains(all, s) {
			stop()
			delete(w.resyncs, s)
		}
	}
}

// Existing makes an Initial delta of every object of the watches, for each of their sources, and
// commits the admissions that admit returns. The checkpoint has either all of them or none.
func (h *Held) Existing(admit func(d *event.Delta) event.Admission) {
	seen := h.clock.Now()
	for _, w := range h.watches {
		for _, s := range w.sources.All() {
			for o := range w.state.All() {
				d := &event.Delta{Source: s.Name, Op: event.Added, New: o, Initial: true, Seen: seen}
				if admission := admit(d); admission != nil {
					w.state.CommitHeld(d, admission)
				}
			}
		}
	}
}

// Existing is [Held.Existing] for restored objects. It is called before [Factory.Run].
func (f *Factory) Existing(admit func(d *event.Delta) event.Admission) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	defer persist.Hold(statesOf(f.watches))()
	(&Held{f.watches, f.clock}).Existing(admit)
}

// Specs returns the Specs of all watches.
func (f *Factory) Specs() []Spec {
	f.mu.RLock()
	defer f.mu.RUnlock()
	specs := make([]Spec, len(f.watches))
	for i, w := range f.watches {
		specs[i] = w.spec
	}
	return specs
}
