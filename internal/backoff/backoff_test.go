package backoff_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestDelay shows that the delay is Min, doubled n-1 times, and at most Max. Without Exact it is
// between half of that and that.
func TestDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exact := backoff.Policy{Exact: true}
		exact.Min = time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "min"))
		exact.Max = time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max"))
		n := rapid.OneOf(rapid.IntRange(-1, 70), rapid.Just(math.MaxInt)).Draw(t, "n")
		want := time.Duration(0)
		if n > 0 {
			want = time.Duration(min(float64(exact.Min)*math.Pow(2, float64(n-1)), float64(exact.Max)))
		}
		random := exact
		random.Exact = false
		if got, less := exact.Delay(n), random.Delay(n); got != want || less < want/2 || less > want {
			t.Fatalf("failure %d: %v and %v, want %v", n, got, less, want)
		}
	})
}

// TestJitter shows that random delays use the whole range.
func TestJitter(t *testing.T) {
	p := backoff.Policy{Min: time.Hour, Max: time.Hour}
	least, most := p.Max, time.Duration(0)
	for range 1000 {
		d := p.Delay(1)
		least, most = min(least, d), max(most, d)
	}
	if least > 33*time.Minute || most < 57*time.Minute {
		t.Errorf("from %v to %v", least, most)
	}
}

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := backoff.Series{Policy: backoff.Policy{Min: time.Second, Max: 5 * time.Second, Exact: true}}
		wait := func(atLeast, want time.Duration) {
			t.Helper()
			began := time.Now()
			if err := s.Wait(t.Context(), atLeast); err != nil || time.Since(began) != want {
				t.Errorf("waited %v, want %v: %v", time.Since(began), want, err)
			}
		}
		wait(0, time.Second)
		wait(0, 2*time.Second)
		wait(time.Minute, time.Minute)
		wait(0, 5*time.Second)
		s.Reset()
		wait(0, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
