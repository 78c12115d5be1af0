package checkpoint

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestGateDuringFailures: intents are registered while failed ones are given back. The race detector
// sees whether both touch a batch at once.
func TestGateDuringFailures(t *testing.T) {
	db := &fakeDB{fails: errors.New("disk full")}
	w := newWriter(db, &fakeCollector{}, nil)
	var registering sync.WaitGroup
	registering.Go(func() {
		for range 2_000 {
			w.Gate("w", intent("a", "a"))
			runtime.Gosched()
		}
	})
	for range 200 {
		_ = w.Flush(t.Context()) // fails if there are intents
		runtime.Gosched()
	}
	registering.Wait()
	db.set(0, nil)
	must.Succeed(t, w.Flush(t.Context()))
	if got := w.Stats().Intents; got != 2_000 {
		t.Errorf("%d intents were written", got)
	}
}
