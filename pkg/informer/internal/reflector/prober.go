package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

// firstProbe is the longest time that the first watch after a restart waits for a probe.
const firstProbe = 10 * time.Second

// prober checks whether the API server has gone back in time or is another cluster: when a watch
// has been opened, and at intervals while it is open. Only the first watch after a restart is
// preceded by a probe, and for a short time: an API server may be slower with lists than with
// watches. The identity of the cluster is requested before each, as the events of another one must
// not be applied. It is safe for concurrent use.
type prober struct {
	cfg     *Config
	inquiry *Inquiry
	quirks  *quirks
	proof   *proof

	open   atomic.Pointer[openWatch] // nil: none
	found  atomic.Pointer[error]     // the error that makes the open watch useless
	probed atomic.Bool               // a probe succeeded once
	// resuming: the watch was resumed without the version of the API server, which the next probe
	// has.
	resuming atomic.Bool
	due      chan struct{} // has an element if a probe is due at once
	counted  recount
}

func newProber(cfg *Config, inquiry *Inquiry, q *quirks) *prober {
	return &prober{cfg: cfg, inquiry: inquiry, quirks: q, proof: newProof(), due: make(chan struct{}, 1)}
}

// openWatch is an open watch.
type openWatch struct {
	stop  func()
	since time.Time
}

// view is a watch at the beginning of a probe.
type view struct {
	of   *prober
	w    *openWatch
	from string // its position
}

// opened records an open watch, which stop ends, until over is called.
func (p *prober) opened(stop func()) (over func()) {
	w := &openWatch{stop: stop, since: time.Now()}
	p.open.Store(w)
	p.soon()
	return func() { p.open.CompareAndSwap(w, nil) }
}

// soon makes a probe due at once.
func (p *prober) soon() {
	select {
	case p.due <- struct{}{}:
	default:
	}
}

// mayResume checks whether a watch may resume from its position. If the API server has another
// history, or is another cluster, it returns errWentBack or errMoved, and the next list is the
// truth. A watch that resumes for the first time is preceded by a probe: without the version of the
// API server, the first events cannot be told from those of a former run.
func (p *prober) mayResume(ctx context.Context) error {
	plan := p.cfg.Plan
	if found := p.found.Swap(nil); found != nil {
		plan.SetLatest()
		return *found
	}
	cluster, err := p.identity(ctx, 0)
	if err == nil && !p.cfg.State.Position.Is(cluster) {
		err = errMoved
	}
	if err == nil && plan.Resumable() {
		err = p.target(ctx)
	}
	if isUseless(err) {
		plan.SetLatest()
	}
	return err
}

// target requests the version of the API server before a watch resumes for the first time.
func (p *prober) target(ctx context.Context) error {
	from := p.cfg.State.Position.Applied()
	patient, cancel := context.WithTimeoutCause(ctx, min(firstProbe, p.cfg.HeaderTimeout), client.ErrSlow)
	defer cancel()
	a, err := p.cfg.Probes.ask(patient, p)
	if err != nil {
		p.resuming.Store(isSlowProbe(err))
		return err
	}
	if persist.Lower(a.version, from) {
		return errWentBack
	}
	p.cfg.State.SetResumeTarget(a.version)
	return nil
}

// willList records the cluster that is about to be listed. If the objects of the cache are of
// another cluster, the listed objects replace them regardless of their resourceVersions.
func (p *prober) willList(ctx context.Context) error {
	plan := p.cfg.Plan
	p.resuming.Store(false)
	if p.found.Swap(nil) != nil {
		plan.SetLatest()
	}
	cluster, err := p.identity(ctx, 0)
	if err != nil {
		return err
	}
	if p.cfg.State.Position.SetListing(cluster) {
		plan.SetLatest()
		p.cfg.Health.noteError(errMoved)
		p.cfg.Log.Warn("the API server belongs to another cluster than the cached objects; its objects are listed, and the differences become deltas",
			"watch", p.cfg.Name)
	}
	return nil
}

// identity requests the identity of the cluster.
func (p *prober) identity(ctx context.Context, maxAge time.Duration) (cluster string, err error) {
	cluster, err = p.cfg.Identity.Identity(ctx, maxAge)
	if err != nil {
		return "", &stepError{err, stepIdentity}
	}
	p.cfg.Health.healthy(stepIdentity)
	return cluster, nil
}

// patrol takes part in the probes of the resource until ctx is done: when the watch was opened, and
// at intervals while it is open. The intervals are random, so that many resources are not probed at
// once.
func (p *prober) patrol(ctx context.Context) {
	interval := p.cfg.ProbeInterval
	for {
		t := time.NewTimer(interval/2 + rand.N(interval*2/5))
		since := time.Now()
		select {
		case <-t.C:
		case <-p.due:
			since = time.Now()
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
		if p.open.Load() != nil {
			p.cfg.Probes.round(ctx, p, since, false)
		}
	}
}

// look returns the watch as it is before a probe. ok: it is open, and the store corresponds to its
// position.
func (p *prober) look() (v view, ok bool) {
	w := p.open.Load()
	if w == nil {
		return view{}, false
	}
	from, ok := p.settled()
	return view{p, w, from}, ok
}

// judge judges an open watch by a probe, and ends it if it is useless: the next one lists. An API
// server that refuses or cannot receive new requests may still keep a watch open, because the watch
// has its credentials from before.
func (p *prober) judge(v view, a answer, err error) {
	if a.known {
		p.cfg.Health.healthy(stepIdentity)
		if !p.cfg.State.Position.Is(a.cluster) {
			err = errMoved
		}
	}
	if apierrors.IsTooManyRequests(err) {
		return
	}
	if err == nil {
		err = p.succeeded(v, a)
	} else if !isUseless(err) && p.open.Load() == v.w && (p.probed.Load() || !cannotProbe(err)) {
		// A client that may only watch is refused each time; that does not concern the watch.
		p.cfg.Health.failing(stepProbe, fmt.Errorf("the watch is open, but would not be opened again: %w", reasonOf(err)))
		return
	}
	if !isUseless(err) {
		return
	}
	// Meanwhile the watch itself may have detected the problem.
	if now, ok := p.settled(); ok && !persist.Lower(now, v.from) && p.open.Load() == v.w {
		p.found.Store(&err)
		v.w.stop()
	}
}

// succeeded judges an open watch by the answer to a probe. It returns why the watch is useless. If
// the version of the API server is lower than that of the watch, a backup was restored: the watch
// would receive no events until the server reaches its version again.
func (p *prober) succeeded(v view, a answer) error {
	if persist.Lower(a.version, v.from) {
		return errWentBack
	}
	p.probed.Store(true)
	p.cfg.Health.healthy(stepProbe)
	if time.Since(v.w.since) > p.cfg.ProbeInterval/2 && p.open.Load() == v.w {
		p.cfg.Health.healthy(stepStream)
	}
	if p.resuming.CompareAndSwap(true, false) {
		p.cfg.State.SetResumeTarget(a.version)
	}
	p.compare(v.w, v.from, a.version)
	return p.recount(a)
}

// settled returns applied if the store corresponds to it and no list is under way.
func (p *prober) settled() (applied string, ok bool) {
	applied, ok = p.cfg.State.Position.Complete()
	return applied, ok && !p.cfg.Plan.Latest()
}

// isUseless reports whether a watch must not continue.
func isUseless(err error) bool {
	return errors.Is(err, errWentBack) || errors.Is(err, errMoved) || errors.Is(err, errStalled) || errors.Is(err, errMiscounted)
}

// isSlowProbe reports whether a probe took too long. The watch may be quick nevertheless, as it
// needs no objects.
func isSlowProbe(err error) bool {
	return errors.Is(err, client.ErrSlow) && !errors.As(err, new(*stepError))
}

// cannotProbe reports whether the API server refuses probes or is too slow for them, which does not
// mean that it refuses watches.
func cannotProbe(err error) bool {
	return !isUseless(err) && (isSlowProbe(err) || apierrors.IsForbidden(err) || client.IsAnswer(err) && !apierrors.IsNotFound(err))
}
