package checkpoint

import (
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// batch has the intents that were registered with a Writer and are not on disk.
type batch struct {
	intents map[string][]*event.Object // by watch, the latest state of an object last
	// by watch, the number of those that were registered before the last cut was collected
	covered map[string]int
	// the first is the one of new intents; the others are of failed batches
	gates []chan struct{}
}

func newBatch() batch {
	return batch{make(map[string][]*event.Object), make(map[string]int), []chan struct{}{make(chan struct{})}}
}

// cover records that a cut was collected after all intents of b were registered.
func (b *batch) cover() {
	for watch, objects := range b.intents {
		b.covered[watch] = len(objects)
	}
}

// outlasting returns the intents that cut does not end.
func (b *batch) outlasting(cut *Cut) map[string][]*event.Object {
	if len(b.intents) == 0 {
		return nil
	}
	over, left := endedBy(cut), make(map[string][]*event.Object, len(b.intents))
	for watch, objects := range b.intents {
		for n, i := range intentsOf(objects) {
			if !over[watch].has(&i, n < b.covered[watch]) {
				left[watch] = append(left[watch], i.object)
			}
		}
	}
	return left
}

func (b *batch) size() (n int) {
	for _, ids := range b.intents {
		n += len(ids)
	}
	return n
}

// add puts a batch that failed in front of b. No cut was collected since.
func (b *batch) add(failed batch) {
	for watch, objects := range b.intents {
		failed.intents[watch] = append(failed.intents[watch], objects...)
	}
	b.intents, b.covered, b.gates = failed.intents, failed.covered, append(b.gates, failed.gates...)
}

func (b *batch) open() {
	for _, gate := range b.gates {
		close(gate)
	}
}

// step writes once: the kept changes, with cut also the new ones, and all intents. It returns the
// time until the next cut (0: unchanged) and whether it succeeded. The caller holds the turn.
func (w *Writer) step(cut bool) (next time.Duration, ok bool) {
	start := time.Now()
	if cut {
		w.collect()
	}
	intents := w.take()
	n := intents.size() // before they are given back, and others add to them
	logged, err := w.write(intents)
	if err != nil {
		w.putBack(intents)
	} else {
		intents.open()
	}
	took := time.Since(start)
	if !logged { // a log mostly waits for the disk, and must not delay the next cut
		w.spent += took
	}
	w.report(err, cut, n, took)
	if err != nil || cut {
		w.collector.Done(err)
	}
	if err != nil {
		return w.backoff.Next(), false
	}
	w.backoff.Reset()
	if !cut {
		return 0, true
	}
	next = min(max(w.spent*writeShare, cutInterval), maxInterval)
	w.spent = 0
	return next, true
}

// collect merges the new changes into the kept ones.
func (w *Writer) collect() {
	w.mu.Lock()
	w.awaitedNow, w.awaited = append(w.awaitedNow, w.awaited...), nil
	w.mu.Unlock()
	cut := w.collector.Collect(w.cover)
	if w.kept != nil {
		cut = merge(*w.kept, cut)
	}
	w.kept = &cut
}

func (w *Writer) cover() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.cover()
}

// write writes the kept changes and then the intents: in this order even if only intents are due,
// because a cut must not end intents that were registered after it was made. logged reports whether
// only intents were due, and appended to the log.
func (w *Writer) write(intents batch) (logged bool, err error) {
	cut := w.kept
	if cut == nil {
		cut = &Cut{}
	}
	if cut.Empty() && intents.size() == 0 && (cut.Cluster == "" || cut.Cluster == w.db.Cluster()) {
		w.kept = nil
		return false, nil
	}
	if w.kept == nil {
		logged, err = w.db.Log(intents.intents)
		w.mu.Lock()
		w.logs = logged && err == nil
		w.mu.Unlock()
		if logged {
			return true, err
		}
	}
	if err = w.db.Commit(cut, intents.outlasting(cut)); err == nil {
		w.kept = nil
	}
	return false, err
}

func (w *Writer) take() batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.waiting
	w.waiting = batch{}
	return taken
}

func (w *Writer) putBack(failed batch) {
	if failed.gates == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.add(failed)
}

func (w *Writer) report(err error, cut bool, intents int, took time.Duration) {
	w.mu.Lock()
	before := w.err
	w.err = err
	w.stats.Writing += took
	switch {
	case err != nil:
		w.stats.Failures++
	case cut:
		w.stats.Cuts++
		w.stats.LastCut = time.Now()
		fallthrough
	default:
		w.stats.Intents += intents
	}
	if err == nil {
		for _, done := range w.awaitedNow {
			close(done)
		}
		w.awaitedNow = nil
	}
	w.mu.Unlock()
	switch {
	case err != nil && before == nil:
		w.log.Error("the state file cannot be written; retrying: deliveries about new objects wait until it succeeds",
			"err", err)
	case err == nil && before != nil:
		w.log.Info("the state file can be written again")
	}
}
