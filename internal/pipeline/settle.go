package pipeline

import (
	"context"
	"fmt"
)

// Settle takes no more deltas, lets the workers finish their batches, and waits for that until ctx
// is done. The rest of the backlog stays pending. It is for a pipeline whose state another process
// continues at once: nothing is delivered twice, and nothing waits for the backlog.
func Settle(ctx context.Context, p *Pipeline) error {
	p.life.stop()
	routes := p.now.Load().routes
	for _, r := range routes {
		r.Workers().Stop()
	}
	done := make(chan struct{})
	go func() {
		for _, r := range routes {
			r.Workers().Wait()
		}
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done(): // Close ends the goroutine
		return fmt.Errorf("deliveries did not end in time: %w", ctx.Err())
	}
}
