package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// stateFile is the file in state.dir.
const stateFile = "state.db"

// notForgotten is what is said when the state folder takes no changes.
const notForgotten = "what is no longer configured stays in the state folder until the next reload or start"

// state is what outlives the process: the checkpoint and the dead letters. Without state.dir there is none (nil).
type state struct {
	db      *checkpoint.DB
	writer  *checkpoint.Writer
	letters *checkpoint.Letters
	log     *slog.Logger

	memories  *memories
	allAtOnce bool // all saved objects are loaded before anything runs

	factory    *informer.Factory
	pipeline   *pipeline.Pipeline
	mu         sync.Mutex
	begun      map[string]bool          // see begin
	introduced []string                 // see introduce
	resource   atomic.Pointer[resolver] // see resolve
}

// openState opens the state folder and locks it.
func openState(cfg config.State, bounds checkpoint.LettersConfig, around func(string, func() error) error, log *slog.Logger) (*state, error) {
	dir := cfg.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state.dir: %w", err)
	}
	db, err := checkpoint.Open(checkpoint.Config{
		Path: filepath.Join(dir, stateFile), MaxSize: int64(cfg.MaxSize), Log: log, Around: around,
	})
	if err != nil {
		return nil, fmt.Errorf("state.dir: %w", err)
	}
	letters, err := db.Letters(bounds)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state.dir: %w", err), db.Close())
	}
	s := &state{db: db, letters: letters, log: log}
	s.writer = checkpoint.NewWriter(db, s, log)
	return s, nil
}

func (s *state) close(context.Context) error { return s.db.Close() }

// announce adds what is to be seen of the checkpoint from outside.
func (s *state) announce(m *metrics.Metrics) {
	began := time.Now()
	m.SetCheckpointAge(func() time.Duration {
		if last := s.writer.Stats().LastCut; !last.IsZero() {
			return time.Since(last)
		}
		return time.Since(began)
	})
}

// check tells /readyz whether the disk takes what is written.
func (s *state) check() api.Check {
	c := api.Check{Name: "state", OK: true, Holds: true}
	if err := s.writer.Err(); err != nil {
		c.OK, c.Message = false, err.Error()
	}
	return c
}

// restore gives the watches and the routes back what was saved of them. It is called when all of them are there, before any runs.
func (s *state) restore(ctx context.Context, watches map[string]*informer.Watch, p *plan) error {
	resources := make(map[string]*event.Resource)
	keep := checkpoint.Configured{}
	atOnce := s.allAtOnce || s.needsObjects(p)
	for _, w := range watches {
		known, err := s.restoreWatch(w, atOnce)
		if err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
		keep.Watches = append(keep.Watches, w.Spec().ID())
		if !known {
			s.begin(w.Spec().ID())
		}
	}
	for name, source := range p.sources {
		resources[name] = watches[source.watches[0].ID()].Resource()
	}
	s.resolve(func(source string) *event.Resource { return resources[source] })
	for _, route := range p.routes {
		if err := s.restoreRoute(route.Route); err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
		keep.Routes = append(keep.Routes, route.Name)
	}
	s.factory.Existing(func(d *event.Delta) func() { return s.pipeline.Existing(context.WithoutCancel(ctx), d) })
	s.introduce(p.routes)
	keep.Handlers = slices.Collect(maps.Keys(p.config.Handlers))
	// A full disk is no reason not to run: what was left undelivered before may make it so.
	if err := s.db.Forget(keep, time.Now()); err != nil {
		s.log.Warn(notForgotten, "err", err)
	}
	return nil
}

// begin says that of a watch nothing is known, whatever the state folder has. It is called while nothing is collected. The next cut
// says that the watch is there: if the process ends before its first list is complete, the routes that are there by then get what
// that list brings. Else only those that are as new as the watch would get it, see event.Delta.Epoch.
func (s *state) begin(watch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun == nil {
		s.begun = make(map[string]bool)
	}
	s.begun[watch] = true
}

// takeBegun reports whether begin was called since the last time.
func (s *state) takeBegun(watch string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := s.begun[watch]
	delete(s.begun, watch)
	return begun
}

// Collect implements checkpoint.Collector: what changed in the watches and in the routes, all at one moment, and what handlers wrote
// until some time after it.
func (s *state) Collect() checkpoint.Cut {
	var cut checkpoint.Cut
	changes := s.factory.Dirty(func() {
		cut.Routes = s.pipeline.Dirty()
		for _, name := range s.takeIntroduced() {
			if !slices.ContainsFunc(cut.Routes, func(c checkpoint.RouteCut) bool { return c.Name == name }) {
				cut.Routes = append(cut.Routes, checkpoint.RouteCut{Name: name})
			}
		}
	})
	cut.Cluster = clusterOf(changes)
	for _, c := range changes {
		begun := s.takeBegun(c.ID)
		if !c.Changed && !begun {
			continue
		}
		w := checkpoint.WatchCut{ID: c.ID, Reset: begun, Cluster: c.Cluster, Fed: c.Fed, Relisting: c.Relisting, Put: c.Put}
		for _, key := range c.Deleted {
			w.Deleted = append(w.Deleted, checkpoint.Identity{Key: key})
		}
		for _, gone := range c.Settled {
			w.Deleted = append(w.Deleted, checkpoint.Identity{Key: gone.Key, UID: gone.UID})
		}
		cut.Watches = append(cut.Watches, w)
	}
	cut.Memories = s.memories.dirty()
	return cut
}

// clusterOf returns the cluster that all watches agree on; empty: they do not, or do not know.
func clusterOf(changes []informer.Changes) (cluster string) {
	for _, c := range changes {
		if c.Cluster == "" || cluster != "" && c.Cluster != cluster {
			return ""
		}
		cluster = c.Cluster
	}
	return cluster
}

// Done implements checkpoint.Collector.
func (s *state) Done(err error) {
	if err == nil {
		s.factory.Saved()
		s.pipeline.Saved(s.db.DebtBytes)
	}
}
