package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/pipeline"
)

func initial(t *testing.T, name string, epoch int) *event.Delta {
	t.Helper()
	d := delta(t, event.Added, name, 0, 1)
	d.Initial, d.Epoch = true, epoch
	return d
}

// TestKnownRoute: what was there before is new to a new route only, at the start as at a reload; what a first list brings is new to
// routes that are not older than its watch.
func TestKnownRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sinks := map[string]*sink{"known": {}, "new": {}, "later": {}, "back": {}}
		route := func(name string, known bool) pipeline.Route {
			r := routeOf(name, "1", sinks[name])
			r.Existing, r.Known, r.Sinks[0].Name = true, known, name
			return r
		}
		known, fresh := route("known", true), route("new", false)
		b := openAs(t, pipeline.Config{Store: disk{}}, known, fresh)
		if commit := b.Existing(t.Context(), initial(t, "cached", 0)); commit != nil {
			commit()
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

// TestInheritAtAReload: a route whose former name a reload removed owes first what is saved under that name, whether it is new itself
// or is at work already; nothing is owed under the former name then.
func TestInheritAtAReload(t *testing.T) {
	for name, atWork := range map[string]bool{"new": false, "at work": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := make(chan struct{})
				s, saved := &sink{before: func(context.Context) { <-open }}, disk{}
				other := routeOf("other", "1", &sink{})
				old, heir := routeOf("old", "1", s), routeOf("heir", "1", s)
				heir.Sinks[0].Name = "heir"                                      // not the breaker of the others
				old.Ready, heir.Ready = make(chan struct{}), make(chan struct{}) // they owe until then
				store := &renamer{disk: saved}
				b := openAs(t, pipeline.Config{Store: store}, other, old)
				store.flush = func() { saved.write(t, b.Dirty()) }
				b.Start(t.Context())
				b.admit(delta(t, event.Added, "a", 0, 1), delta(t, event.Added, "b", 0, 2))
				pass(time.Second)
				if saved.write(t, b.Dirty()); len(saved.owed("old")) != 2 {
					t.Fatalf("owed is %v", saved)
				}
				routes := []pipeline.Route{other}
				if atWork {
					routes = append(routes, heir)
				}
				b.exchange(nil, routes...)
				if atWork {
					b.admit(delta(t, event.Updated, "a", 1, 3))
				}
				saved.write(t, b.Dirty())

				heir.Ready, heir.Was, heir.Renew = nil, "old", true
				change, err := b.Prepare([]pipeline.Route{other, heir})
				if err != nil {
					t.Fatal(err)
				}
				if err := change.Inherit("heir", "old", saved.debt("old"), checkpoint.Debt{}); err != nil {
					t.Fatal(err)
				}
				if saved.write(t, b.Dirty()); len(saved.owed("old")) != 2 {
					t.Error("it is inherited before the exchange")
				}
				change.Swap()
				saved.write(t, b.Dirty()) // whatever is there at this moment, nothing may be lost
				if n := len(saved.owed("old")) + len(saved.owed("heir")); n < 2 {
					t.Errorf("a cut in the middle has %d of the deltas", n)
				}
				change.Finish(t.Context())
				want := []string{"added a@1", "added b@2"}
				if atWork {
					want = append(want, "updated a@3")
				}
				saved.write(t, b.Dirty())
				if n := len(saved.owed("heir")); n != len(want) || len(saved.owed("old")) != 0 {
					t.Errorf("%d are saved as owed, and %d under the former name", n, len(saved.owed("old")))
				}
				close(open)
				pass(time.Second)
				got := s.got()
				if a := only(got, "a@"); a[0] != "added a@1" {
					t.Errorf("got %q", got)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if saved.write(t, b.Dirty()); len(saved.owed("heir")) != 0 {
					t.Error("what is delivered is owed still")
				}
			})
		})
	}
}
