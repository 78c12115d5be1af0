package deliver

import (
	"context"
	"errors"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/pipeline/queue"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// DeadLetterer stores dead letters. It is safe for concurrent use.
type DeadLetterer interface {
	// Add stores dead letters, all or none. If it returns an error, the route keeps the deltas
	// pending and retries later.
	Add(ctx context.Context, letters []checkpoint.Letter) error
	// Remove deletes the dead letters of redelivered deltas, see pipeline.Pipeline.Redeliver, and
	// returns the number of those that existed.
	Remove(ctx context.Context, ids []uint64) (int, error)
}

// LogDeadLetters stores nothing: it logs the lost deltas, without the objects. It is for a router
// without a state folder.
type LogDeadLetters struct{ Log *slog.Logger }

// Add implements [DeadLetterer]. It never fails.
func (l *LogDeadLetters) Add(ctx context.Context, deadLetters []checkpoint.Letter) error {
	for i := range deadLetters {
		deadLetter := &deadLetters[i]
		l.Log.LogAttrs(ctx, slog.LevelError, "delta lost: it was rejected, and there is no state folder to keep it; set state.dir",
			slog.String("route", deadLetter.Route), slog.String("sink", deadLetter.Sink), slog.String("delta", deadLetter.Delta.String()),
			slog.Int("attempts", deadLetter.Attempts), slog.String("err", deadLetter.Error))
	}
	return nil
}

// Remove implements [DeadLetterer]. There are none to remove.
func (l *LogDeadLetters) Remove(context.Context, []uint64) (int, error) { return 0, nil }

// failure is an entry that was rejected for good at one sink or at all of them.
type failure struct {
	entry  *queue.Entry
	sink   int // -1: it was rejected before it reached a sink
	reason error
}

// failures are the entries of a batch to which onFailure applies.
type failures struct{ all []failure }

func (f *failures) end() {
	clear(f.all)
	f.all = f.all[:0]
}

// pauses returns the first failure for which the route would pause, or nil. A delta that is too old
// does not pause the route.
func (f *failures) pauses() *failure {
	for i := range f.all {
		var old *tooOldError
		if !errors.As(f.all[i].reason, &old) {
			return &f.all[i]
		}
	}
	return nil
}

func (b *Batch) sinkName(f *failure) string {
	if f.sink < 0 {
		return ""
	}
	return b.targets[f.sink].Name
}

// applyFailurePolicy applies onFailure to the entries in b.failed.all, and reports whether they are
// done. If not, they stay pending. All dead letters are written at once, because a sink that
// rejects everything must not cost one disk write for each delta.
func (b *Batch) applyFailurePolicy(ctx context.Context) bool {
	for i := range b.failed.all {
		b.env.Progress.Refused(b.failed.all[i].entry.Delta)
		b.trace.failed(b.failed.all[i].entry, b.failed.all[i].reason)
	}
	f := b.failed.pauses()
	switch {
	case len(b.failed.all) == 0:
		return true
	case b.settings.OnFailure == spec.Pause && f != nil:
		b.env.Progress.Pause(f.entry.Delta, b.sinkName(f), f.reason, false)
		return false
	case b.settings.OnFailure == spec.Drop:
		for i := range b.failed.all {
			f := &b.failed.all[i]
			f.entry.Progress.Outcome = max(f.entry.Progress.Outcome, queue.Dropped)
			b.env.Progress.Complain("dropped", f.entry.Delta, b.sinkName(f), f.reason)
		}
		return true
	}
	return b.writeDeadLetters(ctx)
}

// withheldReason ends the error in the dead letters of a route that sees Secrets.
const withheldReason = "; the error is not stored, because the route gets Secrets and the error may repeat their content; see the log, which has one error a minute"

// withheld returns the reason of a failure without its text, which may repeat a Secret: where it
// failed, and the class and category of the error, which are texts of a fixed vocabulary.
func (f *failure) withheld() string {
	var old *tooOldError
	switch {
	case errors.As(f.reason, &old):
		return "older than maxAge of the route" + withheldReason
	case f.sink < 0:
		return classified("the handler or expression", f.reason) + withheldReason
	}
	return classified("the sink", f.reason) + withheldReason
}

// classified returns the class and category of an error.
func classified(where string, err error) string {
	text := where
	switch plugins.ClassOf(err) {
	case plugins.Rejected:
		text += " rejected it"
	case plugins.Paused:
		text += " paused the route"
	case plugins.Postponed:
		text += " postponed it until its retries ended"
	default:
		text += " failed until its retries ended"
	}
	if category := plugins.Category(err); category != "" {
		text += ": " + category
	}
	return text
}

// writeDeadLetters writes dead letters.
func (b *Batch) writeDeadLetters(ctx context.Context) bool {
	now := b.env.Clock.Now()
	deadLetters := make([]checkpoint.Letter, 0, len(b.failed.all))
	_, logs := b.env.Letters.(*LogDeadLetters)
	var calls callRecords
	// A group has one result and a letter for each of its deltas. Errors of routes of Secrets are
	// withheld, because a handler or a receiver may quote the object.
	for i := range b.failed.all {
		f := &b.failed.all[i]
		reason := f.reason.Error()
		switch said := plugins.ResponseOf(f.reason); {
		case logs:
		case b.settings.Secret:
			reason = f.withheld()
		case said != "":
			reason += "; the receiver said: " + said
		}
		for _, e := range b.group.members(f.entry) {
			letter := checkpoint.Letter{
				Time: now, Route: b.settings.ID, Sink: b.sinkName(f), Error: reason, Attempts: max(1, f.entry.Progress.Failures()),
				Unseen: e.Unseen, Delta: e.Delta,
			}
			if !logs && !b.settings.Secret {
				letter.Call = calls.of(f.reason, e)
			}
			deadLetters = append(deadLetters, letter)
		}
	}
	// All are stored or none. Without its letter a delta stays pending, and is tried again later.
	err := b.env.Letters.Add(ctx, deadLetters)
	for i := range b.failed.all {
		f := &b.failed.all[i]
		work := f.entry.Progress
		if err != nil {
			b.settings.Count().Errors("dead_letter").Inc()
			b.env.Progress.Complain("kept pending: dead letters cannot be written", f.entry.Delta, b.sinkName(f), err)
			work.Tries++
			work.Delay = max(work.Delay, b.settings.Retry.Delay(work.Tries))
			continue
		}
		work.Outcome = queue.DeadLettered
		if logs {
			continue // each of them is in the log already
		}
		b.env.Progress.Complain("written to the dead letters", f.entry.Delta, b.sinkName(f), f.reason)
	}
	return err == nil
}

// forgetCalls frees the records of failed calls at the end of a batch, because an entry that stays
// pending may wait for long.
func forgetCalls(entries []*queue.Entry) {
	for _, e := range entries {
		if e.Progress.Dead != nil {
			callrecord.Detach(e.Progress.Dead)
		}
	}
}

// callRecords encodes the records of the calls of a batch. The dead letters of several deltas of
// one call have its record once.
type callRecords struct {
	last *callrecord.Record
	with string // the delta of last
}

// of returns the record for the dead letter of an entry, or nil.
func (c *callRecords) of(reason error, e *queue.Entry) []byte {
	r := callrecord.Of(reason)
	switch {
	case r == nil:
		return nil
	case r.SameCall(c.last):
		r = r.Without(c.with)
	default:
		c.last, c.with = r, e.Delta.String()
	}
	text, err := r.Encode()
	if err != nil {
		return nil // a dead letter without it is better than none
	}
	return text
}
