package pipeline

import (
	"context"
	"log/slog"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
)

// DeadLetterer keeps what could not be delivered. It is safe for concurrent use.
type DeadLetterer interface {
	// Add keeps letters, all or none. If it returns an error, the route goes on owing the deltas, and tries again later.
	Add(ctx context.Context, letters []checkpoint.Letter) error
	// Remove forgets letters whose deltas were put through again, see [Pipeline.Redeliver], and returns how many were there.
	Remove(ctx context.Context, ids []uint64) (int, error)
}

// LogDeadLetters keeps nothing: it says in the log what is lost, without the objects. It is for a router that has no state folder.
type LogDeadLetters struct{ Log *slog.Logger }

// Add implements [DeadLetterer]. It never fails.
func (l *LogDeadLetters) Add(ctx context.Context, letters []checkpoint.Letter) error {
	for i := range letters {
		letter := &letters[i]
		l.Log.LogAttrs(ctx, slog.LevelError, "a delta is lost: it could not be delivered, and there is no state folder to keep it in",
			slog.String("route", letter.Route), slog.String("sink", letter.Sink), slog.String("delta", letter.Delta.String()),
			slog.Int("attempts", letter.Attempts), slog.String("error", letter.Error))
	}
	return nil
}

// Remove implements [DeadLetterer]. There is nothing to remove.
func (l *LogDeadLetters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// failure is an entry that is given up, at one sink or at all of them.
type failure struct {
	entry  *entry
	sink   int // -1: it did not get as far as a sink
	reason error
}

func (w *worker) sinkName(f *failure) string {
	if f.sink < 0 {
		return ""
	}
	return w.cfg.Sinks[f.sink].Name
}

// giveUp does what the route's onFailure says about what is in w.failures, and reports whether that is done with. If not, it is owed
// still. Dead letters are written all at once: a sink that rejects everything must not cost one write to the disk for each delta.
func (w *worker) giveUp(ctx context.Context) bool {
	f := w.pauses()
	switch {
	case len(w.failures) == 0:
		return true
	case w.cfg.OnFailure == Pause && f != nil:
		w.pause(f.entry.delta, w.sinkName(f), f.reason)
		return false
	case w.cfg.OnFailure == Drop:
		for i := range w.failures {
			f := &w.failures[i]
			f.entry.work.outcome = max(f.entry.work.outcome, dropped)
			w.complain("they are dropped", f.entry.delta, w.sinkName(f), f.reason)
		}
		return true
	}
	return w.putAside(ctx)
}

func (w *worker) endFailures() {
	clear(w.failures)
	w.failures = w.failures[:0]
}

// putAside writes dead letters.
func (w *worker) putAside(ctx context.Context) bool {
	now := w.now()
	letters := make([]checkpoint.Letter, 0, len(w.failures))
	for i := range w.failures {
		f := &w.failures[i]
		for _, e := range w.members(f.entry) {
			letters = append(letters, checkpoint.Letter{
				Time: now, Route: w.cfg.Name, Sink: w.sinkName(f), Error: f.reason.Error(), Attempts: max(1, f.entry.work.failures()),
				Unseen: e.unseen, Delta: e.delta,
			})
		}
	}
	err := w.letters.Add(ctx, letters)
	for i := range w.failures {
		f := &w.failures[i]
		work := f.entry.work
		if err != nil {
			w.count.errors("dead_letter").Inc()
			w.complain("dead letters cannot be written, so they are owed still", f.entry.delta, w.sinkName(f), err)
			work.tries++
			work.delay = max(work.delay, w.cfg.Retry.delay(work.tries))
			continue
		}
		work.outcome = deadLettered
		w.complain("they are put aside as dead letters", f.entry.delta, w.sinkName(f), f.reason)
	}
	return err == nil
}
