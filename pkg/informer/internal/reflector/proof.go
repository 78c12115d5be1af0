package reflector

import (
	"errors"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
)

const (
	// maxBarren is the number of barren streams in a row from one position after which a list follows.
	maxBarren = 3
	// barrenLife is the time within which a barren stream ends. For one that lasts, its silence counts.
	barrenLife = 10 * time.Second
)

// errBarren is the reason of a source whose streams end at once and are empty.
var errBarren = errors.New("the watch is opened and ends at once, without an event or a bookmark: the objects are listed instead")

// proof decides when an open watch that brings nothing is replaced by a list: a stream proves by an
// event or a bookmark that changes arrive. It is safe for concurrent use.
type proof struct {
	mu     sync.Mutex
	from   string // the position of the last barren stream
	barren int    // the barren streams in a row from there
	// pause grows until a stream proves itself: some API servers send no bookmarks, so a list that
	// finds nothing is normal there. Its maximum is below the time that the alert on the metric
	// tolerates.
	pause backoff.Series
	next  time.Time // no list before
}

func newProof() *proof {
	return &proof{pause: backoff.Series{Policy: backoff.Policy{Min: time.Minute, Max: 8 * time.Minute, Exact: true}}}
}

// came records that a stream has proved itself.
func (p *proof) came() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.barren = 0
	p.pause.Reset()
}

// ended records a barren stream from a position. stalled: there were too many. due: a list may
// follow.
func (p *proof) ended(from string) (stalled, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.from != from {
		p.from, p.barren = from, 0
	}
	p.barren++
	stalled = p.barren >= maxBarren
	return stalled, stalled && p.due()
}

// silent records that the open stream has been silent for too long. due: a list may follow.
func (p *proof) silent() (due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.due()
}

func (p *proof) due() bool {
	now := time.Now()
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(p.pause.Next())
	return true
}

// barren records a stream that ended without an event or a bookmark. named: its reason is known.
func (p *prober) barren(from string, began time.Time, named bool) {
	if time.Since(began) > barrenLife {
		return
	}
	stalled, due := p.proof.ended(from)
	if stalled && !named {
		p.cfg.Health.failing(stepStream, errBarren)
	}
	if due {
		p.stall()
	}
}

// compare judges an open watch by the version of the API server: if it is not ahead of the position
// from, nothing is missing; else the watch has to bring something.
func (p *prober) compare(w *openWatch, from, version string) {
	if !persist.Lower(from, version) {
		p.cfg.Health.Prove()
	} else if p.cfg.Health.Unproven() > p.cfg.Unproven && p.open.Load() == w && p.proof.silent() {
		p.stall()
		w.stop()
	}
}

// stall makes the next watch a list.
func (p *prober) stall() {
	err := error(errStalled)
	p.found.Store(&err)
	p.quirks.listNext.Store(true)
	p.cfg.Log.Debug("the watch brings nothing although the API server has newer objects or ends it; listing", "watch", p.cfg.Name)
}

// recount decides when a cache that has more objects than the API server is replaced by a list: the
// deletions of some were lost. It is safe for concurrent use.
type recount struct {
	mu     sync.Mutex
	more   int  // the objects that the cache had more in the last comparison
	listed bool // a list followed, and no comparison since then was equal
}

// compared records a comparison, and reports whether a list must follow. One comparison is no
// proof, and the numbers of some API servers are estimates, which a list does not make equal.
func (r *recount) compared(more int) (lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost = more > 0 && more == r.more && !r.listed
	r.more, r.listed = more, lost || r.listed && more > 0
	return lost
}

// recount compares the number of cached objects with that of the API server, if the probe and the
// watch have the same ones.
func (p *prober) recount(a answer) error {
	target := p.cfg.Target
	if a.objects < 0 || a.scope != (scope{path: target.Path()}) || target.InSelected || target.LabelSelector != "" || target.FieldSelector != "" {
		return nil
	}
	last, ok := persist.Expect(p.cfg.State, a.version, a.objects)
	if !ok || !p.counted.compared(last.Stored-last.Server) {
		return nil
	}
	p.cfg.Log.Warn("the cache has more objects than the API server: deletions were lost; the objects are listed, and the differences become deltas",
		"watch", p.cfg.Name, "cached", last.Stored, "existing", last.Server, "resourceVersion", last.Version)
	p.quirks.listNext.Store(true)
	return errMiscounted
}
