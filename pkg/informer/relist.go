package informer

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// relistLook is how often a [Factory.Relist] looks whether what it waits for is of no avail.
const relistLook = 200 * time.Millisecond

// Relisted counts what a [Factory.Relist] has found.
type Relisted struct {
	Objects int // that the API server has
	Deltas  int // what differed from the cache, as deltas
}

// relist is one list that was asked for.
type relist struct {
	found Relisted
	done  chan struct{}
}

// relists are those of a watch.
type relists struct {
	mu        sync.Mutex
	asked     *relist // to be begun; nil: none is
	begun     []*relist
	interrupt context.CancelFunc // of the Reflector
}

// Relist lists what a source watches anew, whatever the cache has, and takes what the API server says for the truth, older states too.
// What differs is put through, for all sources of the watches. It is the remedy where the versions that a restored etcd gives out
// have passed those that were seen: see docs/GUARANTEES.md.
//
// It returns when that is done. An error that is not one of [Factory.Resync]'s says why the API server cannot be asked now; it is asked
// as soon as it can be.
func (f *Factory) Relist(ctx context.Context, source string) (found Relisted, err error) {
	err = f.during(ctx, func(ctx context.Context) error {
		s, ok := f.source(source)
		if !ok {
			return ErrNoSource
		}
		asked := make([]*relist, len(s.watches))
		for i, w := range s.watches {
			asked[i] = w.askRelist()
		}
		for i, w := range s.watches {
			if err := w.awaitRelist(ctx, asked[i]); err != nil {
				return err
			}
			found.Objects += asked[i].found.Objects
			found.Deltas += asked[i].found.Deltas
		}
		return nil
	})
	return found, err
}

// askRelist ends the Reflector; the next one begins with a list. Those who ask before it has begun share it.
func (w *Watch) askRelist() *relist {
	w.relists.mu.Lock()
	defer w.relists.mu.Unlock()
	if w.relists.asked == nil {
		w.relists.asked = &relist{done: make(chan struct{})}
	}
	if w.relists.interrupt != nil {
		w.relists.interrupt()
	}
	return w.relists.asked
}

// awaitRelist waits until the list is complete, the watch has ended, or it is clear that it will take a while.
func (w *Watch) awaitRelist(ctx context.Context, r *relist) error {
	look := time.NewTicker(relistLook)
	defer look.Stop()
	for {
		select {
		case <-r.done:
			return nil
		case <-w.stopped:
			return ErrSourceChanged
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
		if _, reason, _ := w.state(); reason != "" {
			return fmt.Errorf("%s is listed as soon as that is possible, now it is not: %s", w.name, reason)
		}
	}
}

// beginRelists is called before a Reflector runs, which interrupt ends. If a list was asked for, it does not go on from where the watch
// was.
func (w *Watch) beginRelists(interrupt context.CancelFunc) {
	w.relists.mu.Lock()
	defer w.relists.mu.Unlock()
	w.relists.interrupt = interrupt
	if w.relists.asked == nil {
		return
	}
	w.relists.begun, w.relists.asked = append(w.relists.begun, w.relists.asked), nil
	w.latest.Store(true)
	w.resumable.Store(false)
	w.is.mu.Lock()
	w.is.relist = "asked"
	w.is.mu.Unlock()
}

// relistAsked reports whether the next Reflector is waited for.
func (w *Watch) relistAsked() bool {
	w.relists.mu.Lock()
	defer w.relists.mu.Unlock()
	return w.relists.asked != nil
}

// endRelists is called when a list was applied.
func (w *Watch) endRelists(found Relisted) {
	w.relists.mu.Lock()
	defer w.relists.mu.Unlock()
	for _, r := range w.relists.begun {
		r.found = found
		close(r.done)
	}
	w.relists.begun = nil
}
