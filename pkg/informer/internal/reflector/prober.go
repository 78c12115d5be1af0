package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

// prober checks whether the API server has gone back in time or is another cluster: before a watch
// is opened, and at intervals while it is open. It is safe for concurrent use.
type prober struct {
	cfg     *Config
	inquiry *Inquiry
	quirks  *quirks
	proof   *proof

	open   atomic.Pointer[openWatch] // nil: none
	found  atomic.Pointer[error]     // the error that makes the open watch useless
	probed atomic.Bool               // a probe succeeded once
}

// openWatch is an open watch.
type openWatch struct {
	stop    func()
	lasting bool // it was open at an earlier probe; for the patrol
}

// opened records an open watch, which stop ends, until over is called.
func (p *prober) opened(stop func()) (over func()) {
	w := &openWatch{stop: stop}
	p.open.Store(w)
	return func() { p.open.CompareAndSwap(w, nil) }
}

// mayResume checks whether a watch may resume from its position. If the API server has another
// history, or is another cluster, it returns errWentBack or errMoved, and the next list is the
// truth.
func (p *prober) mayResume(ctx context.Context) error {
	plan := p.cfg.Plan
	if found := p.found.Swap(nil); found != nil {
		plan.SetLatest()
		return *found
	}
	version, err := p.probe(ctx, p.cfg.State.Position.Applied(), 0)
	if err != nil {
		if isUseless(err) {
			plan.SetLatest()
		}
		return err
	}
	if plan.Resumable() {
		p.cfg.State.SetResumeTarget(version)
	}
	return nil
}

// willList records the cluster that is about to be listed. If the objects of the cache are of
// another cluster, the listed objects replace them regardless of their resourceVersions.
func (p *prober) willList(ctx context.Context) error {
	plan := p.cfg.Plan
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

// probe requests the identity of the cluster (an answer of maxAge suffices) and the resourceVersion
// of the API server. After a restored backup it is lower than ours, and a watch from ours would
// receive no events until the server reaches it again. The list has no resourceVersion: it is a
// quorum read, so that a replica of the API server that lags behind is not taken for a restored
// backup.
func (p *prober) probe(ctx context.Context, from string, maxAge time.Duration) (version string, err error) {
	cluster, err := p.identity(ctx, maxAge)
	if err != nil {
		return "", err
	}
	if !p.cfg.State.Position.Is(cluster) {
		return "", errMoved
	}
	// Selectors would make the API server read all objects for one that they select; a name does not,
	// and a client may have rights for single names only.
	target, query := p.cfg.Target, url.Values{"limit": {"1"}}
	if strings.Contains(target.FieldSelector, "metadata.name=") {
		query = target.Query(metav1.ListOptions{Limit: 1})
	}
	list, err := p.inquiry.listMetadata(ctx, target.Path(), query)
	if err != nil {
		return "", err
	}
	if persist.Lower(list.ResourceVersion, from) {
		return "", errWentBack
	}
	return list.ResourceVersion, nil
}

// patrol probes at intervals while a watch is open, until ctx is done. The intervals are random, so
// that many watches do not probe at once. A probe that finds a problem ends the watch; the next one
// lists.
func (p *prober) patrol(ctx context.Context) {
	interval := p.cfg.ProbeInterval
	for {
		t := time.NewTimer(interval/2 + rand.N(interval*2/5))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if w := p.open.Load(); w != nil {
			p.inspect(ctx, w)
		}
	}
}

// inspect probes once, and ends the watch if it is useless. An API server that refuses or cannot
// receive new requests may still keep a watch open, because the watch has its credentials from
// before.
func (p *prober) inspect(ctx context.Context, w *openWatch) {
	from, ok := p.settled()
	if !ok {
		return
	}
	version, err := p.probe(ctx, from, p.cfg.ProbeInterval/10)
	switch {
	case ctx.Err() != nil, apierrors.IsTooManyRequests(err):
		return
	case err == nil:
		p.probed.Store(true)
		p.cfg.Health.healthy(stepProbe)
		if w.lasting && p.open.Load() == w {
			p.cfg.Health.healthy(stepStream)
		}
		w.lasting = true
		p.compare(w, from, version)
		return
	case !isUseless(err):
		// A client that may only watch is refused each time; that does not concern the watch.
		if p.open.Load() == w && (p.probed.Load() || !cannotProbe(err)) {
			p.cfg.Health.failing(stepProbe, fmt.Errorf("the watch is open, but would not be opened again: %w", reasonOf(err)))
		}
		return
	}
	// Meanwhile the watch itself may have detected the problem.
	if now, ok := p.settled(); ok && !persist.Lower(now, from) && p.open.Load() == w {
		p.found.Store(&err)
		w.stop()
	}
}

// settled returns fed if the store corresponds to it and no list is under way.
func (p *prober) settled() (fed string, ok bool) {
	fed, ok = p.cfg.State.Position.Complete()
	return fed, ok && !p.cfg.Plan.Latest()
}

// isUseless reports whether a watch must not continue.
func isUseless(err error) bool {
	return errors.Is(err, errWentBack) || errors.Is(err, errMoved) || errors.Is(err, errStalled)
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
