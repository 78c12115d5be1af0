package writer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The pace of a Writer.
const (
	intentWait  = 10 * time.Millisecond  // from the first intent of a batch to its transaction
	cutInterval = time.Second            // the least time between two cuts
	maxInterval = 5 * time.Second        // the most that the budget may make of it
	writeShare  = 10                     // the part of a core, as 1/n, that writing may cost
	soonest     = 100 * time.Millisecond // the least time between two cuts that are asked for
)

// Collector gives a Writer what to write. The Writer calls one method at a time.
type Collector interface {
	// Collect hands over what changed since the last call, all of it as of one instant, at which it
	// calls at once. The cut ends the intents of deleted objects that were registered before that
	// instant, and none that was registered after it. The result belongs to the Writer, which keeps
	// it until it is on disk: the collector need not give it again.
	Collect(at func()) checkpoint.Cut
	// Done says what became of it: nil once everything collected so far is on disk, also if that
	// was nothing; else why the attempt failed. The Writer tries again by itself.
	Done(err error)
}

// store is what a Writer uses of a DB.
type store interface {
	Commit(cut *checkpoint.Cut, intents map[string][]*event.Object) error
	Cluster() string
}

// Writer is the one that writes to a DB while the router runs: intents 10 ms after they were
// registered, cuts once a second, or up to five seconds apart if writing would cost more than a
// tenth of a core.
//
// When a write fails nothing is lost: what was to be written is kept and written together with what
// comes later, gates stay closed, [Writer.Err] says why, and the next attempt comes after a backoff
// of 100 ms to 5 s.
type Writer struct {
	db        store
	collector Collector
	log       *slog.Logger
	turn      chan struct{} // held by whoever writes
	wake      chan struct{} // the first intent of a batch was registered
	soon      chan struct{} // a cut is asked for

	mu      sync.Mutex
	waiting batch
	err     error
	stats   Stats

	// These belong to the holder of the turn.
	kept    *checkpoint.Cut // collected, not on disk
	spent   time.Duration
	backoff backoff.Series
}

// Stats counts what a Writer did.
type Stats struct {
	Cuts     int           // cuts made, also those in which nothing had changed
	Intents  int           // intents written
	Failures int           // transactions that failed
	Writing  time.Duration // spent collecting and writing, in all
	LastCut  time.Time     // when everything that changed was last on disk; zero: never
}

// New returns a Writer that does nothing before [Writer.Run]. log may be nil.
func New(db *checkpoint.DB, collector Collector, log *slog.Logger) *Writer {
	return newWriter(db, collector, log)
}

func newWriter(db store, collector Collector, log *slog.Logger) *Writer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Writer{
		db: db, collector: collector, log: log,
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), soon: make(chan struct{}, 1),
		backoff: backoff.Series{Policy: backoff.Policy{Min: 100 * time.Millisecond, Max: 5 * time.Second, Exact: true}},
	}
}

// Gate registers that a delivery about an object is about to begin whose state no cut holds, and
// returns a channel that is closed once that state is on disk; of a Secret, its identity. It never
// blocks, and the channels of one batch are one.
func (w *Writer) Gate(watch string, o *event.Object) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting.gates == nil {
		w.waiting = newBatch()
		select {
		case w.wake <- struct{}{}:
		default: // the last one was not yet heard
		}
	}
	w.waiting.intents[watch] = append(w.waiting.intents[watch], o)
	return w.waiting.gates[0]
}

// Soon asks for the next cut at once, or 100 ms after the last one: what waits for it takes memory.
// After a write that failed, the next attempt comes when it comes. It never blocks.
func (w *Writer) Soon() {
	select {
	case w.soon <- struct{}{}:
	default: // it is asked for already
	}
}

// Err returns why the last write failed; nil: it did not. While it is not nil the router should not
// be called ready.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stats returns what was done so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Run writes until the context is done; then it returns, without a last cut: see [Writer.Flush].
func (w *Writer) Run(ctx context.Context) {
	cuts := time.NewTimer(cutInterval)
	defer cuts.Stop()
	intents := time.NewTimer(intentWait)
	intents.Stop()
	defer intents.Stop()
	var last time.Time // when a cut was made
	for {
		cut := false
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			if w.Err() == nil { // else they are written by the next attempt
				intents.Reset(intentWait)
			}
			continue
		case <-w.soon:
			if w.Err() == nil {
				cuts.Reset(max(0, soonest-time.Since(last)))
			}
			continue
		case <-intents.C:
		case <-cuts.C:
			cut = true
		}
		select {
		case <-ctx.Done():
			return
		case w.turn <- struct{}{}:
		}
		wait, ok := w.step(cut)
		<-w.turn
		if !ok {
			intents.Stop()
		}
		if cut {
			last = time.Now()
		}
		if wait > 0 {
			cuts.Reset(wait)
		}
	}
}

// Flush makes a last cut, with one attempt, after everything that collects has come to rest. It may
// be called while Run runs or after it. If the disk hangs it returns with the context, and leaves
// the write behind.
func (w *Writer) Flush(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("the last cut was not written: %w", ctx.Err())
	case w.turn <- struct{}{}:
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-w.turn }()
		w.step(true)
		done <- w.Err()
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("the last cut was not written: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the last cut may not have been written: %w", ctx.Err())
	}
}

// ended has the incarnations that a cut is about, each in the state that the cut has of it; nil: it
// is deleted.
type ended map[checkpoint.Identity]*event.Object

func (e ended) add(c *checkpoint.WatchCut) {
	for _, id := range c.Deleted {
		e[id] = nil
	}
	for _, o := range c.Put { // of two cuts that were merged: it came back
		e[checkpoint.Identity{Key: o.Key(), UID: o.UID()}] = o
	}
}

// has reports whether the cut makes an intent superfluous. covered says that the cut was collected
// after the intent was registered: a delete ends no later intent, since the object has come back,
// and an intent may be about a later state than the cut.
func (e ended) has(intent *event.Object, covered bool) bool {
	saved, ok := e[checkpoint.Identity{Key: intent.Key(), UID: intent.UID()}]
	if !ok || saved == intent {
		return ok
	}
	if saved == nil {
		return covered
	}
	order, err := resourceversion.CompareResourceVersion(saved.ResourceVersion(), intent.ResourceVersion())
	return intent.ResourceVersion() == "" || err == nil && order >= 0
}
