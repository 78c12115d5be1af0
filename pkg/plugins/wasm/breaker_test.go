package wasm

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/timer"
)

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker{clock: timer.Real()}
		broken := errors.New("broken")
		allowed := func(n, want int, wait time.Duration) {
			t.Helper()
			if got, w := b.allow(n); got != want || w != wait {
				t.Errorf("%d of %d deltas are allowed, wait %v; want %d, %v", got, n, w, want, wait)
			}
		}
		for range breakerFailures - 1 {
			b.failed(broken)
		}
		allowed(64, 64, 0)
		b.succeeded()
		for range breakerFailures - 1 {
			b.failed(broken)
		}
		allowed(64, 64, 0)

		pause, opened := b.failed(broken)
		if !opened || pause != time.Second || !errors.Is(b.reason(), broken) {
			t.Errorf("after five failures: opened %v for %v, because of %v", opened, pause, b.reason())
		}
		allowed(64, 0, time.Second)
		time.Sleep(time.Second) // the bubble's clock
		allowed(64, 1, 0)
		allowed(64, 0, breakerPause) // somebody else, while that one is tried

		b.abandoned()
		allowed(64, 1, 0)
		for want := 2 * time.Second; want < 300*time.Second; want *= 2 {
			pause, opened = b.failed(broken)
			if !opened || pause != min(want, time.Minute) {
				t.Errorf("opened %v for %v, want %v", opened, pause, min(want, time.Minute))
			}
			time.Sleep(pause)
			allowed(64, 1, 0)
		}
		b.succeeded()
		allowed(64, 64, 0)
		if _, opened := b.failed(broken); opened {
			t.Error("a success does not count")
		}
	})
}
