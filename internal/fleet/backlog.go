package fleet

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	backlogInterval = 5 * time.Second
	backlogTimeout  = 4 * time.Second
)

// Backlog reports the number of messages for workers that are not acknowledged, every few seconds
// until ctx is done. It reports known false while NATS does not answer, and at the end.
func (c *Conn) Backlog(ctx context.Context, report func(messages uint64, known bool)) {
	tick := time.NewTicker(backlogInterval)
	defer tick.Stop()
	defer report(0, false)
	for {
		messages, err := c.waiting(ctx)
		report(messages, err == nil)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// waiting returns the number of messages for workers.
func (c *Conn) waiting(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	stream, err := c.JS.Stream(ctx, c.Names.Work())
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(WorkListFilter(c.Names)))
	if err != nil {
		return 0, err
	}
	lists := uint64(len(info.State.Subjects))             // each of them has one message
	return max(info.State.Msgs, lists+1) - lists - 1, nil // nor is the lead record for workers
}
