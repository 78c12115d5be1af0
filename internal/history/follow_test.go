package history_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/history"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestFollow: a follower gets each decision of its route, with the time that the files have, or
// counts it as missed; the recording does not wait for it.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir(), usual)
		decide := func(route string, n int) {
			r.Decided(&history.Decision{Object: history.Object{Source: "pods"}, Route: route, Version: fmt.Sprint(n), Outcome: history.Delivered})
		}
		decide("r", 0)
		f, leave := r.Follow("r")
		_, other := r.Follow("other")
		const many = 300
		for n := range many {
			decide("r", n+1)
			decide("second", n)
			time.Sleep(1234567 * time.Nanosecond)
		}
		other()
		reader, err := r.Reader(t.Context())
		must.Succeed(t, err)
		recorded, err := reader.Decisions(t.Context(), "r", history.Span{}, 1000, func(*history.Decision) bool { return true })
		must.Succeed(t, err)
		got := 0
		for ; len(f.Decisions()) > 0; got++ {
			d := <-f.Decisions()
			if want := recorded[len(recorded)-2-got]; d.Version != fmt.Sprint(got+1) || d.Version != want.Version || !d.At.Equal(want.At) {
				t.Fatalf("decision %d is %s of %s; the files have %s of %s", got, d.Version, d.At, want.Version, want.At)
			}
		}
		if missed := f.Missed(); got == 0 || got+int(missed) != many || len(recorded) != many+1 || f.Missed() != 0 {
			t.Errorf("%d decisions and %d missed, %d recorded, want %d in all", got, missed, len(recorded), many)
		}
		leave()
		if decide("r", 7); len(f.Decisions()) > 0 {
			t.Error("it got a decision after its end")
		}
	})
}
