package checkpoint

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// The pace of a Writer.
const (
	intentWait  = 10 * time.Millisecond  // from a write to the next one, if intents are committed
	cutInterval = time.Second            // the shortest time between two cuts
	maxInterval = 5 * time.Second        // the longest time between two cuts, by the budget
	writeShare  = 10                     // the part of a core, as 1/n, that writing may use
	soonest     = 100 * time.Millisecond // the shortest time between two requested cuts
)

// Collector collects the changes for a Writer. The Writer calls one method at a time.
type Collector interface {
	// Collect returns the changes since the last call, all as of one instant, at which it calls at.
	// The cut ends the intents of deleted objects that were registered before that instant, and
	// none that was registered after it. The Writer keeps the result until it is on disk, so the
	// collector does not return it again.
	Collect(at func()) Cut
	// Done reports the result: nil once everything collected so far is on disk, also if nothing was
	// collected; otherwise the error of the attempt. The Writer retries by itself.
	Done(err error)
}

// store has the methods of a DB that a Writer uses.
type store interface {
	Commit(cut *Cut, intents map[string][]*event.Object) error
	Log(intents map[string][]*event.Object) (ok bool, err error)
	Cluster() string
}

// Writer writes to a DB while the router runs: intents at once, or together when the present write
// ends; cuts once a second, or up to five seconds apart if writing would use more than a tenth of a
// core. Intents that the DB does not log are committed, at least 10 ms after the write before.
//
// A failed write loses nothing: its changes are kept and written together with later ones, gates
// stay closed, [Writer.Err] returns the error, and the next attempt follows after a backoff of 100
// ms to 5 s.
type Writer struct {
	db        store
	collector Collector
	log       *slog.Logger
	turn      chan struct{} // held during a write
	wake      chan struct{} // the first intent of a batch was registered
	soon      chan struct{} // a cut is requested

	mu      sync.Mutex
	waiting batch
	logs    bool // the last intents were logged
	// channels to close when the next collected cut is on disk, and when the present one is
	awaited, awaitedNow []chan struct{}

	err   error
	stats WriterStats

	// These belong to the holder of the turn.
	kept    *Cut // collected, not on disk
	spent   time.Duration
	backoff backoff.Series
}

// WriterStats counts the work of a Writer.
type WriterStats struct {
	Cuts     int           // including cuts without changes
	Intents  int           // intents written
	Failures int           // transactions that failed
	Writing  time.Duration // spent collecting and writing, in all
	LastCut  time.Time     // when everything that changed was last on disk; zero: never
}

// NewWriter returns a Writer, which writes only after the start of [Writer.Run]. log may be nil.
func NewWriter(db *DB, collector Collector, log *slog.Logger) *Writer {
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

// Gate registers that a delivery about an object is about to begin whose state no cut has. It
// returns a channel that is closed once that state is on disk; of a Secret, its identity. It never
// blocks, and one batch has one channel.
func (w *Writer) Gate(watch string, o *event.Object) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting.gates == nil {
		w.waiting = newBatch()
		select {
		case w.wake <- struct{}{}:
		default: // the last signal was not received yet
		}
	}
	w.waiting.intents[watch] = append(w.waiting.intents[watch], o)
	return w.waiting.gates[0]
}

// Soon requests the next cut at once, or 100 ms after the last one, because the waiting deltas take
// memory. After a failed write, the next attempt still follows its backoff. It never blocks.
func (w *Writer) Soon() {
	select {
	case w.soon <- struct{}{}:
	default: // already requested
	}
}

// AwaitCut waits until a cut that is collected from now on is on disk, or ctx is done.
func (w *Writer) AwaitCut(ctx context.Context) {
	w.mu.Lock()
	done := make(chan struct{})
	w.awaited = append(w.awaited, done)
	w.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Err returns the error of the last write; nil: it succeeded. While it is not nil the router is not
// ready.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stats returns the counts so far.
func (w *Writer) Stats() WriterStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Run writes until the context is done; it then returns without a last cut: see [Writer.Flush].
func (w *Writer) Run(ctx context.Context) {
	cuts := time.NewTimer(cutInterval)
	defer cuts.Stop()
	intents := time.NewTimer(intentWait)
	intents.Stop()
	defer intents.Stop()
	var last, wrote time.Time // when a cut was made, and when a write ended
	for {
		cut := false
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			if w.Err() != nil { // the next attempt writes them
				continue
			}
			if wait := w.intentPause() - time.Since(wrote); wait > 0 {
				intents.Reset(wait)
				continue
			}
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
		wrote = time.Now()
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

// intentPause returns the least time between the last write and one that only intents need. A
// transaction costs several times as much as the append of a log.
func (w *Writer) intentPause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logs {
		return 0
	}
	return intentWait
}

// Flush makes a last cut, with one attempt, after all collected state has come to rest. It may be
// called while Run runs or after it. If the disk hangs it returns with the context, while the write
// is still running.
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

// ended has the incarnations in a cut, each with its state there; nil: it is deleted.
type ended map[Identity]*event.Object

// endedBy returns the incarnations in a cut, by watch. A nil cut has none.
func endedBy(cut *Cut) map[string]ended {
	if cut == nil || len(cut.Watches) == 0 {
		return nil
	}
	all := make(map[string]ended, len(cut.Watches))
	for i := range cut.Watches {
		c := &cut.Watches[i]
		if all[c.ID] == nil {
			all[c.ID] = make(ended, len(c.Put)+len(c.Deleted))
		}
		all[c.ID].add(c)
	}
	return all
}

func (e ended) add(c *WatchCut) {
	for _, id := range c.Deleted {
		e[id] = nil
	}
	for _, o := range c.Put { // after a merge of two cuts: it returned
		e[Identity{Key: o.Key(), UID: o.UID()}] = o
	}
}

// has reports whether the cut makes an intent superfluous. covered says that the cut was collected
// after the intent was registered: a delete ends no later intent, since the object has returned,
// and an intent may have a later state than the cut.
func (e ended) has(i *newIntent, covered bool) bool {
	saved, ok := e[i.Identity]
	if !ok || i.object != nil && saved == i.object {
		return ok
	}
	if saved == nil {
		return covered
	}
	order, err := resourceversion.CompareResourceVersion(saved.ResourceVersion(), i.version)
	return i.version == "" || err == nil && order >= 0
}
