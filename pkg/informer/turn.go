package informer

import "context"

// turn is a lock that nobody waits for longer than a context: who holds it may be waiting for room in a queue.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take returns false, without the lock, if ctx is done before it is free.
func (t turn) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t turn) give() { <-t }
