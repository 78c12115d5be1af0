package pipeline_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

func initial(t *testing.T, name string, epoch int) *event.Delta {
	t.Helper()
	d := delta(t, event.Added, name, 0, 1)
	d.Initial, transit.Of(d).Epoch = true, epoch
	return d
}

// TestKnownRoute: existing objects are new only to a new route, at the start and at a reload; the
// objects of a first list are new to routes that are not older than its watch.
func TestKnownRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sinks := map[string]*recordingSink{"known": {}, "new": {}, "later": {}, "back": {}}
		route := func(name string, known bool) spec.Settings {
			r := routeOf(name, "1", sinks[name])
			r.Existing, r.Known, r.Sinks[0].Name = true, known, name
			return r
		}
		known, fresh := route("known", true), route("new", false)
		b := openAs(t, pipeline.Config{Store: fakeStore{}}, known, fresh)
		if commit := b.Existing(t.Context(), initial(t, "cached", 0)); commit != nil {
			commit.Commit()
		}
		b.Start(t.Context())
		b.admit(initial(t, "old-watch", -1), initial(t, "new-watch", 0))
		b.exchange([]*event.Delta{initial(t, "cached", 0)}, known, fresh, route("later", false), route("back", true))
		b.admit(initial(t, "old-watch-2", -1), initial(t, "new-watch-2", 0), initial(t, "newest-watch", 1))
		pass(time.Second)
		for name, want := range map[string][]string{
			"known": {"added old-watch-2@1", "added old-watch@1"},
			"new":   {"added cached@1", "added new-watch-2@1", "added new-watch@1", "added old-watch-2@1", "added old-watch@1"},
			"later": {"added cached@1", "added new-watch-2@1", "added newest-watch@1", "added old-watch-2@1"},
			"back":  {"added new-watch-2@1", "added old-watch-2@1"},
		} {
			got := sinks[name].got()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s got %q, want %q", name, got, want)
			}
		}
	})
}
