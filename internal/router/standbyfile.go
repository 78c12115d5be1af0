package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// standbyFile is the configuration of a standby, which follows its file: the next leader begins
// with it.
type standbyFile struct {
	*standby

	watched *watchedFile
	now     atomic.Pointer[config.Config]
	failed  atomic.Pointer[string] // why the file is not the configuration; nil: it is

	mu   sync.Mutex
	made *inspect.Inventory // of now, for the API; nil: not asked for yet
}

// newStandbyFile has the configuration with which the standby begins.
func newStandbyFile(s *standby, watched *watchedFile) *standbyFile {
	f := &standbyFile{standby: s, watched: watched}
	watched.include(s.cfg.Included())
	f.use(s.cfg)
	return f
}

// use replaces the configuration.
func (f *standbyFile) use(cfg *config.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Store(cfg)
	f.made = nil
	f.failed.Store(nil)
	f.metrics.ConfigHash.Reset()
	f.metrics.ConfigHash.WithLabelValues(cfg.Hash).Set(1)
	f.metrics.ConfigReloadOK.Set(1)
}

// config returns the configuration with which this member would lead.
func (f *standbyFile) config() *config.Config { return f.now.Load() }

// check returns the check that the standby could lead with the file.
func (f *standbyFile) check() api.Check {
	c := api.Check{Name: "config", OK: true}
	if reason := f.failed.Load(); reason != nil {
		c.OK, c.Message = false, "this standby could not lead with the changed configuration: "+*reason
	}
	return c
}

// watch reads the file when it changes, and on a signal, until ctx is done.
func (f *standbyFile) watch(ctx context.Context) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.opts.Reload:
			f.watched.remember()
			f.read()
		case <-poll.C:
			if f.watched.changed() {
				f.read()
			}
		}
	}
}

// read reads the file. A member with mistakes in it could not lead.
func (f *standbyFile) read() {
	cfg, problems := config.Load(f.opts.Config, f.opts.Components.Policy)
	if cfg != nil {
		f.watched.include(cfg.Included())
	}
	if len(problems) == 0 {
		problems = fixed(files.Name(f.opts.Config), f.cfg, cfg)
	}
	if len(problems) == 0 && (cfg.Hash != f.config().Hash || f.failed.Load() != nil) {
		f.use(cfg)
		f.log.Info("fleet: this standby has read its changed configuration", "config", f.opts.Config, "hash", cfg.Hash)
	}
	if len(problems) == 0 {
		return
	}
	texts := textsOf(problems)
	reason := firstOf(texts)
	f.failed.Store(&reason)
	f.metrics.ConfigReloadOK.Set(0)
	for _, text := range texts {
		f.log.Error("fleet: this standby could not lead with its changed configuration", "err", text)
	}
}

// inventory compiles the configuration for the queries of the API, and keeps the result.
func (f *standbyFile) inventory(ctx context.Context) (*inspect.Inventory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made != nil {
		return f.made, nil
	}
	p, problems := f.opts.Dependencies.Plans.Plan(ctx, inputOf(f.opts), f.opts.Components,
		func(config.Cluster) (*informer.Client, error) { return f.client, nil })
	if len(problems) > 0 {
		return nil, problems
	}
	set := engine.NewSet(f.opts.env(), p)
	set.OpenStores(&engine.Set{})
	f.made = set.Inventory()
	return f.made, nil
}
