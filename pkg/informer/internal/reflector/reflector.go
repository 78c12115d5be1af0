package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// absentPoll is the longest interval between two requests for a resource that does not exist yet.
const absentPoll = 5 * time.Second

// Reflector passes all objects of a resource and all their changes to a [Sink].
type Reflector struct {
	cfg     *Config
	prober  *prober
	inquiry *Inquiry
	quirks  quirks
	// running is held for reading by calls that may outlast client-go's Reflector.
	running sync.RWMutex
}

// New returns a Reflector. inquiry has the same configuration.
func New(cfg *Config, inquiry *Inquiry) *Reflector {
	r := &Reflector{cfg: cfg, inquiry: inquiry}
	r.prober = newProber(cfg, inquiry, &r.quirks)
	return r
}

// Run watches until ctx is done.
func (r *Reflector) Run(ctx context.Context) {
	var loads sync.WaitGroup
	defer loads.Wait()
	if l := r.cfg.State.Loader(); l != nil {
		loads.Go(func() { l.Run(ctx) })
	}
	pause := backoff.Series{Policy: r.cfg.Backoff}
	for first := true; r.resolve(ctx); first = false {
		if !first {
			// The API server did not have the resource for a while, which happens while it starts.
			r.cfg.Plan.MayResume(r.cfg.State.CanResume())
		}
		began := time.Now()
		r.reflect(ctx)
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if !r.cfg.Relists.Asked() && pause.Wait(ctx, 0) != nil {
			return
		}
	}
}

// resolve waits until discovery has the resource. It returns false when ctx is done.
func (r *Reflector) resolve(ctx context.Context) bool {
	pause, absent := backoff.Series{Policy: r.cfg.Backoff}, absence{cfg: r.cfg, inquiry: r.inquiry}
	for ctx.Err() == nil {
		found, err := absent.discover(ctx, min(r.cfg.Backoff.Max, absentPoll))
		if err == nil && !found.Namespaced {
			err = r.cfg.Target.misplaced()
		}
		if err == nil {
			r.cfg.Health.healthy(stepDiscovery)
			r.cfg.Target.discovered(found)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		pause.Max = client.MaxPause(r.cfg.Backoff.Max, err)
		if errors.Is(err, client.ErrAbsent) {
			pause.Max = min(pause.Max, absentPoll)
			if err = absent.missed(ctx); errors.Is(err, client.ErrAbsent) {
				r.cfg.Health.Prove() // what does not exist has no changes
			}
		} else {
			absent.failed()
		}
		r.cfg.Health.failing(stepDiscovery, fmt.Errorf("resource %s: %w", client.ResourceName(r.cfg.Target.GVR), err))
		if pause.Wait(ctx, client.RetryAfter(err)) != nil {
			return false
		}
	}
	return false
}

// reflect runs client-go's Reflector until ctx is done, the API server no longer has the resource,
// or a list is requested.
func (r *Reflector) reflect(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	if r.cfg.Relists.begin(gone) {
		r.cfg.Plan.MustListLatest()
		r.cfg.Health.noteAsked()
	}
	logger := klogOf(r.cfg.Log)
	lw := &listerWatcher{cfg: r.cfg, prober: r.prober, quirks: &r.quirks, running: &r.running, gone: gone}
	inner := cache.NewReflectorWithOptions(lw, nil, r.cfg.Sink.Store(ctx), cache.ReflectorOptions{
		Name: r.cfg.Name, TypeDescription: client.ResourceName(r.cfg.Target.GVR), Logger: &logger, Clock: stopClock{ctx: ctx},
		Backoff: &wait.Backoff{
			Duration: r.cfg.Backoff.Min, Cap: r.cfg.Backoff.Max, Steps: 40, Factor: 2, Jitter: 0.5,
		},
	})
	inner.WatchListPageSize = r.cfg.PageSize
	defer r.cfg.Probes.join(r.prober)()
	var patrol sync.WaitGroup
	patrol.Go(func() { r.prober.patrol(ctx) })
	inner.RunWithContext(klog.NewContext(ctx, logger))
	gone()
	patrol.Wait()
	r.running.Lock() // wait for requests that outlast client-go's Reflector
	defer r.running.Unlock()
}

// Reopen ends the open stream of the watch, if there is one. The next one begins where it ended,
// and has the present format.
func (r *Reflector) Reopen() {
	if w := r.prober.open.Load(); w != nil {
		w.stop()
	}
}

// stopClock is the real clock, but a wait on After ends with the context. Some waits of client-go's
// Reflector do not.
type stopClock struct {
	clock.RealClock

	ctx context.Context //nolint:containedctx // client-go's interface has no place for it
}

// After implements clock.Clock.
func (c stopClock) After(d time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(ctx, func() {
		cancel()
		ch <- time.Now()
	})
	return ch
}
