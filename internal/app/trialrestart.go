package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// trialSize is what the state file of a trial may grow to.
const trialSize = 1 << 30

// openState opens the state folder, if there is one.
func (t *Trial) openState(seen <-chan struct{}) (err error) {
	if t.dir == "" {
		return nil
	}
	r := t.r
	if r.state, err = openState(config.State{Dir: t.dir, MaxSize: trialSize}, checkpoint.LettersConfig{}, nil, r.log); err != nil {
		return err
	}
	r.state.allAtOnce, r.seen = true, seen
	r.onClose("state", r.state.close)
	return nil
}

// settle waits until the routes have nothing to do, and what they wait for is on disk.
func (t *Trial) settle(ctx context.Context) error {
	if err := t.r.pipeline.Idle(ctx); err != nil || t.r.state == nil {
		return err
	}
	if err := t.r.state.writer.Flush(ctx); err != nil {
		return err
	}
	return t.r.pipeline.Idle(ctx) // what was told waited for it
}

// Restart ends the router as a stop does that delivers nothing more, and begins it anew when the clock shows up. meanwhile says what happened
// while it was down, as Put and Delete do; the router sees it as soon as it is up, before time makes anything of what it knew. It waits until
// the routes are idle.
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
	t.r.reloads.wait.Wait() // every source has synced, so each wait ends
	for i := range t.r.plan.routes {
		t.lookAt(&t.r.plan.routes[i])
	}
	if err := meanwhile(ctx); err != nil {
		return err
	}
	close(seen)
	for i := range t.r.plan.routes { // see looker.run
		if route := &t.r.plan.routes[i]; route.Check > 0 {
			t.due = append(t.due, route.Name)
		}
	}
	if err := t.idle(ctx); err != nil {
		return err
	}
	return t.Pass(ctx, up) // what became due meanwhile
}

// down ends the router, and writes what is to be known of it.
func (t *Trial) down(ctx context.Context) error {
	t.stop()
	t.r.reloads.wait.Wait()
	t.r.requeues.wait.Wait()
	err := t.r.pipeline.Close(ctx)
	if err = errors.Join(err, t.r.state.writer.Flush(ctx), t.r.close(ctx)); err != nil {
		return fmt.Errorf("the router could not be stopped: %w", err)
	}
	return nil
}
