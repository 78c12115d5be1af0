package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// StateFile is the state file in state.dir.
const StateFile = "state.db"

// notForgotten is logged when the state folder accepts no changes.
const notForgotten = "the state of removed routes, sources and handlers stays in the state folder until the next reload or start"

// State is the state that survives the process: the checkpoint and the dead letters. Without
// state.dir there is none (nil).
type State struct {
	db      *checkpoint.DB
	Writer  *checkpoint.Writer
	Letters *checkpoint.Letters
	History *history.Log // is settled before each cut is saved; nil: there is none
	log     *slog.Logger
	maxSize int64 // of the state file, in bytes

	memories  *Memories
	hashKey   []byte // see hashed
	lossy     bool   // the last cuts of another member may be missing
	AllAtOnce bool   // all saved objects are restored before the start

	factory  *informer.Factory
	pipeline *pipeline.Pipeline
	watches  *Watches
	resource atomic.Pointer[resolver] // see Resolve
	appeared                          // since the last cut
}

// Shipping makes the state file one whose transactions standbys apply, too: see the fields of the
// same names in checkpoint.Config. The zero Shipping is that of a router without a fleet.
type Shipping struct {
	DB      *checkpoint.DB // the open file of a standby, which Open takes over; nil: Open opens it
	Shipped func(checkpoint.Frame)
	Confirm func(checkpoint.Position)
	Term    uint64
}

// open opens the state file, or goes on with the one that is open: to read it again would take
// long.
func (s *Shipping) open(cfg checkpoint.Config) (*checkpoint.DB, error) {
	if s.DB == nil {
		cfg.Shipped, cfg.Confirm, cfg.Term = s.Shipped, s.Confirm, s.Term
		return checkpoint.Open(cfg)
	}
	if err := s.DB.Lead(s.Shipped, s.Confirm, s.Term); err != nil {
		return nil, errors.Join(err, s.DB.Close())
	}
	return s.DB, nil
}

// OpenState opens the state folder and locks it. The dead letters follow with OpenLetters.
func OpenState(cfg config.State, around func(string, func() error) error, ship Shipping, log *slog.Logger) (*State, error) {
	dir := cfg.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state.dir: %w", fileerr.Explain(err))
	}
	db, err := ship.open(checkpoint.Config{Path: filepath.Join(dir, StateFile), MaxSize: int64(cfg.MaxSize), Log: log, Around: around})
	if err != nil {
		return nil, fmt.Errorf("state.dir: %w", err)
	}
	hashKey, err := hashKeyOf(db, dir, ship.Shipped != nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state.dir: %w", err), db.Close())
	}
	checkpoint.SetKey(db, fingerprint.NewKey(hashKey))
	s := &State{db: db, log: log, maxSize: int64(cfg.MaxSize), hashKey: hashKey, lossy: ship.Shipped != nil}
	s.Writer = checkpoint.NewWriter(db, s, log)
	return s, nil
}

// OpenLetters reads the dead letters, and removes those beyond the bounds.
func (s *State) OpenLetters(bounds checkpoint.LettersConfig) (err error) {
	if s.Letters, err = s.db.Letters(bounds); err != nil {
		return fmt.Errorf("state.dir: %w", err)
	}
	return nil
}

// DB returns the state file.
func (s *State) DB() *checkpoint.DB { return s.db }

// Backup makes a copy of the state file, for api.ControlConfig.
func (s *State) Backup(ctx context.Context) (api.Backup, error) {
	b, err := s.db.Backup(ctx)
	if errors.Is(err, checkpoint.ErrBackupRuns) {
		return api.Backup{}, fmt.Errorf("%w: %w", api.ErrBusy, err)
	}
	if err != nil {
		return api.Backup{}, err
	}
	return api.Backup{ReadCloser: b, Size: b.Size, Written: b.Written}, nil
}

// Close closes the state file and unlocks the folder.
func (s *State) Close(context.Context) error { return s.db.Close() }

// Announce adds the metrics of the state folder.
func (s *State) Announce(m *metrics.Metrics) {
	began := time.Now()
	m.SetState(metrics.State{
		Age: func() time.Duration {
			if last := s.Writer.Stats().LastCut; !last.IsZero() {
				return time.Since(last)
			}
			return time.Since(began)
		},
		Size: s.db.Size, Limit: s.maxSize, Room: s.db.Room,
	})
}

// leastRoom is the least room on the disk that is left to the state, in bytes.
const leastRoom = 256 << 20

// HistoryRoom returns the bytes that are free on the disk, and how many of them the state may need:
// a copy of the state file, as in the alert DeltarouterDiskLow. false: the first is not known.
func (s *State) HistoryRoom() (free, needed int64, known bool) {
	free, known = s.db.Room()
	return free, max(s.db.Size(), leastRoom), known
}

// Check returns the check for /readyz that writes to the disk succeed.
func (s *State) Check() api.Check {
	c := api.Check{Name: "state", OK: true, Holds: true}
	if err := s.Writer.Err(); err != nil {
		c.OK, c.Message = false, err.Error()
	}
	return c
}

// Restore restores the saved state of the watches and the routes. It is called when all of them
// exist, before any runs.
func (s *State) Restore(ctx context.Context, watches map[string]*informer.Watch, p *compile.Plan) error {
	resources := make(map[string]*event.Resource)
	keep := checkpoint.Configured{Prefixes: p.Disabled()}
	atOnce := s.AllAtOnce || s.needsObjects(p)
	for _, w := range watches {
		known, err := s.restoreWatch(ctx, w, atOnce)
		if err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
		keep.Watches = append(keep.Watches, w.Spec().ID())
		if !known { // the next cut records that its first list is still to come
			s.Begin(w.Spec().ID())
		}
	}
	// Saved deltas get their resource by the name of their source, so the routes come later.
	for name, source := range p.Sources {
		resources[name] = watches[source.Specs[0].ID()].Resource()
	}
	s.Resolve(func(source string) *event.Resource { return resources[source] })
	for _, route := range p.Routes {
		if err := s.restoreRoute(route.Route); err != nil {
			return fmt.Errorf("state.dir: %w", err)
		}
		keep.Routes = append(keep.Routes, route.ID)
	}
	keep.Routes = append(keep.Routes, p.UnfitIDs()...)
	// New routes get the existing objects and become known in one cut: after a crash they have both
	// or neither.
	s.factory.Existing(func(d *event.Delta) event.Admission { return s.pipeline.Existing(context.WithoutCancel(ctx), d) })
	s.Introduce(p.Routes)
	keep.Handlers = Remembering(p.Config)
	// A full disk does not prevent the start: undelivered deltas may have filled it.
	if err := s.db.Forget(keep, time.Now()); err != nil {
		s.log.Warn(notForgotten, "err", err)
	}
	return nil
}

// Collect implements checkpoint.Collector: it returns the changes of the watches and the routes,
// all at one moment, and the writes of handlers until some time after it.
func (s *State) Collect(at func()) checkpoint.Cut {
	var cut checkpoint.Cut
	// Between BeginCut and End no watch applies a delta, so the backlogs of the routes agree with
	// the applied resourceVersions.
	held := s.factory.BeginCut()
	at()
	for _, p := range []participant{s.pipeline, s.watches, &s.appeared} {
		for _, c := range p.Dirty() {
			addRoute(&cut, c)
		}
	}
	// The watches go on; the rest concerns copies.
	changes := held.End()
	cut.Cluster = clusterOf(changes)
	for _, c := range changes {
		begun := s.takeBegun(c.ID)
		if !c.Changed && !begun {
			continue
		}
		w := checkpoint.WatchCut{ID: c.ID, Reset: begun, Cluster: c.Cluster, Applied: c.Applied, Reached: c.Reached, Relisting: c.Relisting, Kept: c.Kept, Put: c.Put}
		for _, key := range c.Deleted {
			w.Deleted = append(w.Deleted, checkpoint.Identity{Key: key})
		}
		for _, gone := range c.Settled {
			w.Deleted = append(w.Deleted, checkpoint.Identity{Key: gone.Key, UID: gone.UID})
		}
		cut.Watches = append(cut.Watches, w)
	}
	// Last: the writes of a handler are then in the cut in which its delta is done, or earlier.
	cut.Memories = s.memories.dirty()
	s.History.Settle()
	return cut
}

// participant has state of routes that is saved with that of the watches.
type participant interface {
	// Dirty returns the changes of each route since the last call. The cut locks of all watches are
	// held.
	Dirty() []checkpoint.RouteCut
}

// addRoute adds the changes of a route to the cut, in which another participant may have put some.
func addRoute(cut *checkpoint.Cut, c checkpoint.RouteCut) {
	i := slices.IndexFunc(cut.Routes, func(other checkpoint.RouteCut) bool { return other.Name == c.Name })
	if i < 0 {
		cut.Routes = append(cut.Routes, c)
		return
	}
	of := &cut.Routes[i]
	of.Put, of.Removed, of.Rules = append(of.Put, c.Put...), append(of.Removed, c.Removed...), append(of.Rules, c.Rules...)
}

// clusterOf returns the cluster that all watches agree on; empty: they differ, or one is unknown.
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
func (s *State) Done(err error) {
	if err == nil {
		s.factory.Saved()
		s.pipeline.Saved(s.db.BacklogBytes)
	}
}

// RestoreWatches restores the pending work of the watches of routes. comesBack selects the routes
// by their ids.
func (s *State) RestoreWatches(all []*watchedRoute, routes []compile.Route, comesBack func(id string) bool) error {
	return s.watches.Restore(s.db, all, routes, *s.resource.Load(), comesBack)
}

// Use sets the parts whose state is saved. It is called once, before Restore.
func (s *State) Use(f *informer.Factory, p *pipeline.Pipeline, w *Watches) {
	s.factory, s.pipeline, s.watches = f, p, w
}

// Forget is forget, and logs the error.
func (s *State) Forget(ctx context.Context, p *compile.Plan) error {
	err := s.forget(ctx, p)
	if err != nil {
		s.log.Warn(notForgotten, "err", err)
	}
	return err
}

// forget removes the state that the configuration no longer names. The collected changes are
// written first, so that they cannot bring it back.
func (s *State) forget(ctx context.Context, p *compile.Plan) error {
	if err := s.Writer.Flush(ctx); err != nil {
		return err
	}
	handlers := Remembering(p.Config)
	s.memories.Keep(handlers)
	keep := checkpoint.Configured{Handlers: handlers, Prefixes: p.Disabled()}
	for _, source := range p.Sources {
		for _, spec := range source.Specs {
			keep.Watches = append(keep.Watches, spec.ID())
			if of, ok := spec.Namespaces(); ok {
				keep.Watches = append(keep.Watches, of.ID())
			}
		}
	}
	for i := range p.Routes {
		keep.Routes = append(keep.Routes, p.Routes[i].ID)
	}
	keep.Routes = append(keep.Routes, p.UnfitIDs()...)
	return s.db.Forget(keep, time.Now())
}
