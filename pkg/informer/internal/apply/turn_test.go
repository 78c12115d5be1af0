package apply

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestTurn: the turn has one holder at a time, and a wait for it ends with its context.
func TestTurn(t *testing.T) {
	turn, held := newTurn(), 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if !turn.take(t.Context()) {
					t.Error("it was not given")
					return
				}
				held++
				turn.give()
			}
		})
	}
	all.Wait()
	if held != 8000 {
		t.Errorf("held %d times, want 8000", held)
	}
	turn.take(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if turn.take(ctx) {
		t.Error("two have it")
	}
}
