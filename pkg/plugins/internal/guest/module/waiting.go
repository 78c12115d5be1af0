package module

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// retries are the pauses between attempts to open a handler.
var retries = backoff.Policy{Min: time.Second, Max: time.Minute}

// waiting is a handler whose registry was not available when the router started. It postpones its
// deltas until the handler could be opened.
type waiting struct {
	log  *slog.Logger
	stop context.CancelFunc
	done chan struct{} // closed when no attempt runs any more

	mu     sync.Mutex
	opened plugins.Handler // nil: not yet
	err    error           // of the last attempt
	next   time.Time       // of the next attempt
}

// wait returns a handler that calls open until it succeeds. err is the error of the first attempt.
func wait(ctx context.Context, log *slog.Logger, err error, open func(context.Context) (plugins.Handler, error)) *waiting {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &waiting{log: log, stop: stop, done: make(chan struct{})}
	log.Warn("the module cannot be fetched; the deltas of the handler wait for it", "err", err)
	w.failed(err, retries.Delay(1))
	go w.run(ctx, open)
	return w
}

func (w *waiting) run(ctx context.Context, open func(context.Context) (plugins.Handler, error)) {
	defer close(w.done)
	for n := 1; ; n++ {
		w.mu.Lock()
		pause := time.NewTimer(time.Until(w.next))
		last := w.err.Error()
		w.mu.Unlock()
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		h, err := open(ctx)
		if err == nil {
			w.mu.Lock()
			w.opened = h
			w.mu.Unlock()
			return
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			w.log.Warn("the module cannot be fetched; the deltas of the handler wait for it", "err", err)
		}
		w.failed(err, retries.Delay(n+1))
	}
}

// failed records a failed attempt.
func (w *waiting) failed(err error, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.next = err, time.Now().Add(pause)
}

// Handle implements [plugins.Handler].
func (w *waiting) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	w.mu.Lock()
	h, err, pause := w.opened, w.err, max(time.Until(w.next), retries.Min)
	w.mu.Unlock()
	if h == nil {
		return nil, plugins.Postpone(fmt.Errorf("the handler waits for its module: %w", err), pause)
	}
	return h.Handle(ctx, batch)
}

// Digest implements [plugins.Pinned].
func (w *waiting) Digest() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pinned, ok := w.opened.(plugins.Pinned); ok {
		return pinned.Digest()
	}
	return ""
}

// Timeout implements [plugins.Timed].
func (w *waiting) Timeout() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if timed, ok := w.opened.(plugins.Timed); ok {
		return timed.Timeout()
	}
	return 0
}

// Close implements [plugins.Handler].
func (w *waiting) Close(ctx context.Context) error {
	w.stop()
	<-w.done
	if w.opened == nil {
		return nil
	}
	return w.opened.Close(ctx)
}
