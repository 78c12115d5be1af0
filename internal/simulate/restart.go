package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// trialSize bounds the state file of a trial.
const trialSize = 1 << 30

// openState opens the state folder, if the trial has one.
func (t *Trial) openState(seen <-chan struct{}) (err error) {
	if t.scene.Dir == "" {
		return nil
	}
	e := t.e
	if e.State, err = engine.OpenState(config.State{Dir: t.scene.Dir, MaxSize: trialSize}, nil, engine.Shipping{}, e.Log); err != nil {
		return err
	}
	e.State.AllAtOnce, e.Seen = true, seen
	e.OnClose("state", e.State.Close)
	return e.State.OpenLetters(checkpoint.LettersConfig{})
}

// settle waits until the routes are idle and the state is on disk.
func (t *Trial) settle(ctx context.Context) error {
	if err := t.e.Pipeline.Idle(ctx); err != nil || t.e.State == nil {
		return err
	}
	if err := t.e.State.Writer.Flush(ctx); err != nil {
		return err
	}
	return t.e.Pipeline.Idle(ctx) // sinks get some events only after the state is on disk
}

// Restart stops the router without delivering the backlog, and starts it again when the clock shows
// up. meanwhile makes the changes during that time, with Put and Delete; the router sees them at
// its start, before time passes. Restart returns when the routes are idle.
func (t *Trial) Restart(ctx context.Context, up time.Time, meanwhile func(ctx context.Context) error) error {
	if err := t.down(ctx); err != nil {
		return err
	}
	t.clock.Advance(up)
	t.due = nil
	seen := make(chan struct{})
	if err := t.begin(ctx, seen); err != nil {
		return err
	}
	for _, f := range t.feeds {
		f.Resume()
	}
	t.e.Waits.Wait() // every source has synced, so each wait ends
	for i := range t.e.Set.Plan.Routes {
		t.rescanAll(&t.e.Set.Plan.Routes[i])
	}
	if err := meanwhile(ctx); err != nil {
		return err
	}
	close(seen)
	for i := range t.e.Set.Plan.Routes { // see rescanner.run
		if route := &t.e.Set.Plan.Routes[i]; route.Reevaluate > 0 {
			t.due = append(t.due, route.Name)
		}
	}
	if err := t.idle(ctx); err != nil {
		return err
	}
	return t.Pass(ctx, up) // reports that became due meanwhile
}

// down stops the router and writes its state.
func (t *Trial) down(ctx context.Context) error {
	t.stop()
	t.e.Waits.Wait()
	t.e.Watches.Wait()
	err := t.e.Pipeline.Close(ctx)
	if err = errors.Join(err, t.e.State.Writer.Flush(ctx), t.e.Close(ctx)); err != nil {
		return fmt.Errorf("the router could not be stopped: %w", err)
	}
	return nil
}
