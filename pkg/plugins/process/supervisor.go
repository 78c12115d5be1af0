package process

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Second // with callers that wait
	longestOpen  = time.Minute // with callers that return at once
)

// supervisor keeps one process running. It restarts the process at once after the first loss.
// Before each further restart without an answer in between it pauses, longer each time. After
// limits.breaker losses callers do not wait: their deltas are postponed.
type supervisor struct {
	s      *settings
	stop   context.CancelFunc
	done   chan struct{}
	result error // of the end of the process; set before done is closed

	mu       sync.Mutex
	now      *process      // nil: no process is ready
	changed  chan struct{} // closed when now or until change
	failures int           // since the last answer
	until    time.Time     // the end of the pause
	last     error         // the reason why no process is ready
}

// downError means that no process is ready.
type downError struct {
	err  error
	wait time.Duration
}

func (e *downError) Error() string {
	return fmt.Sprintf("the circuit breaker is open, because the plugin was lost repeatedly: %v", e.err)
}
func (e *downError) Unwrap() error { return e.err }

// supervise starts a first process, so that a plugin that cannot start is an error at once.
func supervise(ctx context.Context, s *settings) (*supervisor, error) {
	first, err := start(ctx, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	v := &supervisor{s: s, stop: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	v.set(first)
	go v.run(ctx, first)
	return v, nil
}

// run runs the processes one after the other.
func (v *supervisor) run(ctx context.Context, p *process) {
	defer close(v.done)
	for {
		select {
		case <-ctx.Done():
			v.result = p.stop()
			return
		case <-p.lost:
		}
		v.set(nil)
		v.s.env.Count(plugins.GuestsEnded, p.reason).Add(1)
		if err := p.end(); err != nil {
			v.s.env.Log.Error("the plugin could not be removed completely", "err", err)
		}
		if p = v.again(ctx, p.err); p == nil {
			return
		}
		v.set(p)
	}
}

// again restarts the process after a loss, with as many attempts as necessary. It returns nil when
// the supervisor ends.
func (v *supervisor) again(ctx context.Context, err error) *process {
	for {
		pause, open := v.failed(err)
		v.s.lines.Report()
		v.s.env.Log.Warn("plugin was lost; it is restarted", "pause", pause, "breaker_open", open, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		var p *process
		if p, err = start(ctx, v.s); err == nil {
			return p
		}
		if ctx.Err() != nil {
			return nil
		}
		v.s.env.Count(plugins.GuestsEnded, "start").Add(1)
		err = fmt.Errorf("starting it: %w", err)
	}
}

// set sets the process that is ready.
func (v *supervisor) set(p *process) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = p
	v.tell()
}

// tell wakes the waiting callers. The lock is held.
func (v *supervisor) tell() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// failed counts a loss. It returns the pause before the next start, and whether the breaker is
// open.
func (v *supervisor) failed(err error) (pause time.Duration, open bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failures++
	v.last = err
	pauses := backoff.Policy{Min: firstPause, Max: longestPause, Exact: true}
	if v.open() {
		pauses.Max = longestOpen
	}
	pause = pauses.Delay(v.failures - 1)
	v.until = time.Now().Add(pause)
	v.tell()
	return pause, v.open()
}

// open reports whether the breaker is open. The lock is held.
func (v *supervisor) open() bool { return v.s.Limits.Breaker > 0 && v.failures >= v.s.Limits.Breaker }

// succeeded resets the failures after an answered call.
func (v *supervisor) succeeded() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failures = 0
}

// get returns the process, and waits for one that is being started. The error is that of ctx or a
// downError.
func (v *supervisor) get(ctx context.Context) (*process, error) {
	for {
		v.mu.Lock()
		p, changed, open := v.now, v.changed, v.open()
		down := &downError{v.last, max(time.Until(v.until), firstPause)}
		v.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case p != nil && !p.gone(): // the supervisor may not have noticed the loss yet
			return p, nil
		case open:
			return nil, down
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// close ends the process. It takes at most limits.stopTimeout and the time that the system needs to
// kill it.
func (v *supervisor) close(ctx context.Context) error {
	v.mu.Lock()
	p := v.now
	v.mu.Unlock()
	v.stop()
	if p != nil {
		hurry := context.AfterFunc(ctx, p.child.KillGroup)
		defer hurry()
	}
	<-v.done
	return v.result
}
