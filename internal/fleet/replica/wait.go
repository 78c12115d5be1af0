package replica

import (
	"context"
	"errors"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
)

// Confirm waits until the frame is published, if the configuration says so: for a second at most,
// and not at all after such a wait until no frame waits any more.
func (s *Shipper) Confirm(p checkpoint.Position) {
	if !s.cfg.Wait {
		return
	}
	bound := time.NewTimer(confirmBound)
	defer bound.Stop()
	for {
		s.mu.Lock()
		published, late, changed := s.done.Number >= p.Number || s.phase != running, s.late || s.broken, s.changed
		s.mu.Unlock()
		if published {
			return
		}
		// One transaction has waited in vain already: the next ones would wait for the same cause.
		if late {
			s.cfg.Figures.Late.Add(1)
			return
		}
		select {
		case <-changed:
		case <-bound.C: // the file goes on without NATS
			s.cfg.Figures.Late.Add(1)
			s.mu.Lock()
			s.late = true
			s.broadcast()
			s.mu.Unlock()
			return
		}
	}
}

// Flush waits until all frames are published that were shipped before, and the snapshot that a
// follower needs. It is for a clean stop, before Run ends.
func (s *Shipper) Flush(ctx context.Context) error {
	for {
		s.mu.Lock()
		done := s.done.Number >= s.newest.Number && len(s.queue) == 0 && s.taken == 0 && !s.broken
		phase, changed := s.phase, s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		if phase == ended {
			return errors.New("the last frames of the state file are not published: nothing publishes them any more")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Lag returns the frames that are not published, and the age of the oldest.
func (s *Shipper) Lag() Lag {
	s.mu.Lock()
	defer s.mu.Unlock()
	lag := Lag{Known: true, Frames: s.newest.Number - min(s.done.Number, s.newest.Number)}
	if !s.since.IsZero() {
		lag.Time = time.Since(s.since)
	}
	return lag
}
