package main

import (
	"context"
	"time"
)

// costs are the figures of a program in one round.
type costs struct {
	ready                time.Duration
	rss                  float64 // MiB, shortly after the start
	rated, burst         float64 // CPU s for 1,000 changes
	ratedP50, ratedP99   time.Duration
	burstP50, burstP99   time.Duration
	ratedLost, burstLost int
}

// cost measures a program at a steady rate and in a burst. The CPU is that until all changes are
// told and a moment more, in which a program may write its state.
func (c *comparison) cost(ctx context.Context, who contender) (r costs, err error) {
	s, err := c.open(ctx, who, c.size.objects)
	if err != nil {
		return r, err
	}
	defer s.end()
	r.ready = s.ready
	if err := sleep(ctx, time.Until(s.began.Add(c.size.rssAfter))); err != nil {
		return r, err
	}
	r.rss = s.memory()
	n := int(c.size.rateFor.Seconds()) * c.size.rate
	if r.rated, r.ratedP50, r.ratedP99, r.ratedLost, err = s.measure(ctx, c.size.rate, s.changed(0, n, c.size.objects)); err != nil {
		return r, err
	}
	if r.burst, r.burstP50, r.burstP99, r.burstLost, err = s.measure(ctx, 0, s.changed(n, c.size.objects, c.size.objects)); err != nil {
		return r, err
	}
	return r, s.check()
}

// measure makes the changes, and waits until they are told.
func (s *scene) measure(ctx context.Context, rate int, writes []write) (cpu float64, p50, p99 time.Duration, lost int, err error) {
	before := s.cpu()
	changes, err := s.batch(ctx, s.ledger, rate, writes)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if err := s.await(ctx, s.size.patience, changes); err != nil {
		return 0, 0, 0, 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, 0, 0, 0, err
	}
	cpu = (s.cpu() - before).Seconds() * 1000 / float64(len(changes))
	p50, p99 = s.latency(changes)
	return cpu, p50, p99, s.lost(changes), nil
}

// atRest returns the resident memory of a program without changes, at the times of the size.
func (c *comparison) atRest(ctx context.Context, who contender, objects int) (rss []float64, err error) {
	s, err := c.open(ctx, who, objects)
	if err != nil {
		return nil, err
	}
	defer s.end()
	for _, after := range c.size.rest {
		if err := sleep(ctx, time.Until(s.began.Add(after))); err != nil {
			return nil, err
		}
		rss = append(rss, s.memory())
	}
	return rss, s.check()
}
