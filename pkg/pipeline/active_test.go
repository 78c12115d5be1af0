package pipeline_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

// TestActive: for which objects a condition holds is told page by page, each object once and in order, with what is to come.
func TestActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openAs(t, pipeline.Config{}, pipeline.Route{
			Name: "r", Ops: edges, Handler: flags, Sinks: to(&sink{}), Existing: true,
			When: pipeline.When{Filter: whenOn, Version: "1", For: time.Minute, Every: time.Hour},
		}, pipeline.Route{Name: "plain", Handler: flags, Sinks: to(&sink{})})
		b.Start(t.Context())
		var want []string
		began := time.Now()
		for i := range 25 {
			name := fmt.Sprintf("l%02d", i*7%25)
			want = append(want, name)
			b.admit(lampDelta(t, event.Added, name, i+1, true))
		}
		slices.Sort(want)
		b.admit(lampDelta(t, event.Added, "dark", 100, false))
		for _, limit := range []int{1, 2, 3, 7, 24, 25, 26} {
			var got []string
			for after := (pipeline.Holding{}); ; {
				page, more, ok := b.Active("r", after, limit)
				if !ok || len(page) > limit || more && len(page) < limit {
					t.Fatalf("limit %d: %d, %t, %t", limit, len(page), more, ok)
				}
				for _, h := range page {
					got = append(got, h.Key.Name)
					if h.State != "pending" || !h.Since.Equal(began) || !h.Due.Equal(began.Add(time.Minute)) || h.UID != "uid-"+h.Key.Name {
						t.Errorf("got %+v", h)
					}
				}
				if !more {
					break
				}
				after = page[len(page)-1]
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d: got %q", limit, got)
			}
		}
		pass(time.Minute + time.Hour)
		page, _, _ := b.Active("r", pipeline.Holding{}, 1)
		if h := page[0]; h.State != "told" || h.Repeat != 1 || !h.Due.Equal(began.Add(time.Minute+2*time.Hour)) {
			t.Errorf("got %+v", h)
		}
		for _, name := range []string{"plain", "none"} {
			if _, _, ok := b.Active(name, pipeline.Holding{}, 1); ok {
				t.Errorf("%s has a condition", name)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
