package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// BacktestOptions are the options of a backtest.
type BacktestOptions struct {
	Recording *recording.Reader
	// Routes are the only routes that run, with those whose events they get; empty: all.
	Routes []string
	// HTTP answers the requests of a handler; nil: they fail.
	HTTP func(handler string) http.RoundTripper
	// Take is called with each outcome in the order of time. initial: it is about the objects as
	// they were at the begin, and not about a change.
	Take func(o Outcome, initial bool)
}

// Backtested is the result of a backtest.
type Backtested struct {
	Header  recording.Header
	End     time.Time // of the recording, by its clock
	Changes int       // of the recording, without the first lists
	Notes   []string  // reasons for which the results may differ from those of a running router
	CutOff  error     // the recording has no end line; nil: it has
}

// Backtest runs the routes on a recording in a [Trial], so with the clock of the recording and as
// fast as possible, and without sinks.
func (o *Offline) Backtest(ctx context.Context, opts BacktestOptions) (done Backtested, err error) {
	done.Header = opts.Recording.Header()
	done.End = done.Header.Time
	b := &backtest{BacktestOptions: opts, done: &done, open: make(map[string]bool)}
	fits, notes := o.fit(&done.Header)
	done.Notes = notes
	for name := range done.Header.Sources {
		b.open[name] = true
	}
	plan, cfg := *o.plan, *o.plan.Config
	cfg.Cluster.Name = done.Header.Cluster // a part of the ids of events
	plan.Config = &cfg
	b.trial, err = (&Offline{&plan, o.env}).Begin(ctx, Scene{Start: done.Header.Time, Routes: opts.Routes, HTTP: opts.HTTP, fits: fits})
	if err != nil {
		return done, err
	}
	err = b.run(ctx)
	if errors.Is(err, recording.ErrCutOff) {
		done.CutOff, err = err, nil
	}
	if pending := b.pending(); pending != "" {
		done.Notes = append(done.Notes, pending)
	}
	return done, errors.Join(err, b.trial.Close(context.WithoutCancel(ctx)))
}

type backtest struct {
	BacktestOptions

	trial *Trial
	done  *Backtested
	open  map[string]bool // recorded sources whose first list has not ended
}

// run plays all lines.
func (b *backtest) run(ctx context.Context) error {
	if err := b.begin(ctx, ""); err != nil { // of sources without a recorded one
		return err
	}
	for {
		l, err := b.Recording.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		at := b.done.Header.Time.Add(l.At)
		if at.After(b.done.End) {
			if err := b.pass(ctx, at); err != nil {
				return err
			}
			b.done.End = at
		}
		if err := b.play(ctx, &l); err != nil {
			return err
		}
	}
}

// pass moves the clock. Outcomes are taken at each time at which there are any.
func (b *backtest) pass(ctx context.Context, to time.Time) error {
	for next, ok := b.trial.clock.Next(); ok && next.Before(to); next, ok = b.trial.clock.Next() {
		if err := b.trial.Pass(ctx, next); err != nil {
			return err
		}
		b.take(false)
	}
	if err := b.trial.Pass(ctx, to); err != nil {
		return err
	}
	b.take(false)
	return nil
}

func (b *backtest) take(initial bool) {
	if b.trial.rec.isEmpty() {
		return
	}
	for _, o := range b.trial.Take() {
		b.Take(o, initial)
	}
}

func (b *backtest) play(ctx context.Context, l *recording.Line) error {
	switch l.Op {
	case recording.End:
		b.note(l.Damaged > 0, "%d segments of the history can be read in part only: changes are missing", l.Damaged)
		b.note(l.Stateless > 0, "%d changes have no states in the history, and are missing", l.Stateless)
		return nil
	case recording.Synced:
		return b.begin(ctx, l.Source)
	case recording.Existing:
		for f := range b.trial.from(l) {
			if err := f.Exists(ctx, l.Object); err != nil {
				return fmt.Errorf("source %q: %w", l.Source, err)
			}
		}
		return nil
	case recording.Sync:
		return nil // a resync of the recorded router is none of this one
	case recording.Added, recording.Updated, recording.Deleted, recording.Deselected:
	}
	b.done.Changes++
	for f := range b.trial.from(l) {
		if err := tell(ctx, f, l); err != nil {
			return fmt.Errorf("source %q: %w", l.Source, err)
		}
	}
	if err := b.trial.idle(ctx); err != nil {
		return err
	}
	b.take(len(b.open) > 0)
	return nil
}

// begin ends the first list of a recorded source. When all have ended, the rules begin.
func (b *backtest) begin(ctx context.Context, source string) error {
	for i := range b.trial.feeds {
		if f := &b.trial.feeds[i]; f.recorded == source {
			if err := f.Listed(ctx); err != nil {
				return err
			}
		}
	}
	delete(b.open, source)
	if len(b.open) > 0 {
		return nil
	}
	b.trial.e.Waits.Wait()
	for i := range b.trial.e.Set.Plan.Routes {
		b.trial.rescanAll(&b.trial.e.Set.Plan.Routes[i])
	}
	if err := b.trial.idle(ctx); err != nil {
		return err
	}
	b.take(true)
	return nil
}

func (b *backtest) note(holds bool, format string, args ...any) {
	if holds {
		b.done.Notes = append(b.done.Notes, fmt.Sprintf(format, args...))
	}
}

// pending returns a note on deltas that wait at the end, for a batch or for a debounce; empty:
// there are none.
func (b *backtest) pending() string {
	var waiting []string
	for _, s := range b.trial.e.Pipeline.Status() {
		if s.Pending > 0 {
			waiting = append(waiting, fmt.Sprintf("%s (%d)", s.Name, s.Pending))
		}
	}
	if len(waiting) == 0 {
		return ""
	}
	return "deltas are still pending at the end, and not among the results: " + strings.Join(waiting, ", ")
}

// from returns the feeds that get the lines of a recorded source.
func (t *Trial) from(l *recording.Line) func(yield func(*informer.Injector) bool) {
	return func(yield func(*informer.Injector) bool) {
		for i := range t.feeds {
			f := &t.feeds[i]
			if f.recorded != l.Source {
				continue
			}
			if l.Kind != "" {
				f.SetKind(l.Kind)
			}
			if !yield(f.Injector) {
				return
			}
		}
	}
}
