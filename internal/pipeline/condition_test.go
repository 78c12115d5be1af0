package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/filters"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// edges are the ops of routes with conditions.
var edges = []event.Op{event.Entered, event.Left}

// conditionDelta is a change of an object with a uid derived from its name.
func conditionDelta(t testing.TB, op event.Op, name string, version int, on bool) *event.Delta {
	t.Helper()
	d := &event.Delta{Source: "pods", Op: op, Seen: time.Now()}
	o := conditionObject(t, name, "uid-"+name, version, on)
	if op == event.Deleted || op == event.Deselected {
		d.Old = o
	} else {
		d.New = o
	}
	return d
}

// describingHandler is a handler whose events show the fields that the rules set.
var describingHandler = handleEach(func(d *event.Delta) plugins.Result {
	text := fmt.Sprintf("%s %s@%s", d.Op, d.Key().Name, d.Object().ResourceVersion())
	if d.Repeat > 0 {
		text += fmt.Sprintf(" repeat %d", d.Repeat)
	}
	if d.Late {
		text += " late"
	}
	return plugins.Result{Events: []plugins.Emit{{Data: []byte(text)}}}
})

func (s *recordingSink) data() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, e := range s.events {
		list = append(list, string(e.Data))
	}
	return list
}

func expectData(t *testing.T, s *recordingSink, want ...string) {
	t.Helper()
	if got := s.data(); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// expectDataOfObjects is expectData for events of different objects, which have no order. want is
// sorted.
func expectDataOfObjects(t *testing.T, s *recordingSink, want ...string) {
	t.Helper()
	if got := slices.Sorted(slices.Values(s.data())); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q in any order", got, want)
	}
}

// fakeCache is a cache of these objects.
func fakeCache(objects ...*event.Object) func(string, event.Key) *event.Object {
	return func(_ string, key event.Key) *event.Object {
		i := slices.IndexFunc(objects, func(o *event.Object) bool { return o.Key() == key })
		if i < 0 {
			return nil
		}
		return objects[i]
	}
}

func resourceOf(string) *event.Resource { return pods }

// runOnce runs a pipeline of one route on a disk while f runs, and ends it abruptly.
func runOnce(t *testing.T, d *flakyStore, r spec.Settings, f func(b *harness)) {
	t.Helper()
	b := openAs(t, pipeline.Config{Store: d}, r)
	d.restore(b, "r")
	b.Start(t.Context())
	f(b)
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// No report is made before a cut contains it. A pending condition survives a restart. A report that
// came due in between is late, and made only after all earlier changes were seen, with the present
// object.
func TestConditionRestart(t *testing.T) {
	// Guarantee: conditions-late
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(caughtUp chan struct{}) spec.Settings {
			return spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true, When: spec.When{
				Filter: whenOn, Version: "1", For: time.Minute, CaughtUp: caughtUp, Resource: resourceOf,
				Object: fakeCache(conditionObject(t, "a", "uid-a", 7, true), conditionObject(t, "b", "uid-b", 2, true), conditionObject(t, "d", "uid-d", 4, true)),
			}}
		}
		runOnce(t, d, route(nil), func(b *harness) {
			for i, name := range []string{"a", "b", "c", "d"} {
				b.admit(conditionDelta(t, event.Added, name, i+1, true))
			}
			pass(30 * time.Second)
			d.cut(b)
			if n := b.Pending("r"); n != 0 {
				t.Errorf("%d are pending", n)
			}
		})
		pass(time.Hour)
		caughtUp := make(chan struct{})
		runOnce(t, d, route(caughtUp), func(b *harness) {
			pass(time.Second)
			b.admit(conditionDelta(t, event.Updated, "b", 9, false))
			if n := b.Pending("r"); n != 0 {
				t.Errorf("%d are pending before it is known whether they hold", n)
			}
			close(caughtUp)
			pass(time.Second)
			expectData(t, s)
			d.cut(b)
			pass(time.Second)
			if got := s.data(); len(got) != 2 || !slices.Contains(got, "entered a@7 late") || !slices.Contains(got, "entered d@4 late") {
				t.Errorf("reported %q", got) // c does not exist any more
			}
			d.cut(b)
			s.events = nil
			b.admit(conditionDelta(t, event.Deleted, "d", 4, true))
		})
		runOnce(t, d, route(nil), func(b *harness) { // the delete is seen again
			b.admit(conditionDelta(t, event.Deleted, "d", 4, true), conditionDelta(t, event.Added, "e", 20, true))
			d.cut(b)
			pass(59 * time.Second)
			expectData(t, s, "left d@4")
			pass(time.Second)
			d.cut(b)
			pass(time.Second)
			expectData(t, s, "left d@4", "entered e@20")
		})
	})
}

// TestConditionGoneAtStart: an object leaves the cache before its delete is pending, and in that
// moment a missed reminder is due. The object was reported, so its end is reported, too.
func TestConditionGoneAtStart(t *testing.T) {
	// Guarantee: conditions-alternate
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		caughtUp := make(chan struct{})
		r := spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), Existing: true, When: spec.When{
			Filter: whenOn, Version: "1", Every: time.Minute, CaughtUp: caughtUp, Resource: resourceOf, Object: fakeCache(),
		}}
		runOnce(t, d, r, func(b *harness) {
			b.admit(conditionDelta(t, event.Added, "a", 1, true))
			if d.soon == 0 {
				t.Error("no cut is requested, although a report waits for it")
			}
			d.cut(b)
			pass(time.Second)
			d.cut(b)
		})
		pass(time.Hour)
		runOnce(t, d, r, func(b *harness) {
			commit, err := b.Admit(t.Context(), conditionDelta(t, event.Deleted, "a", 1, true))
			if err != nil || commit == nil {
				t.Fatalf("commit: %v, %v", commit != nil, err)
			}
			close(caughtUp)
			pass(10 * time.Minute)
			commit.Commit()
			d.cut(b)
			pass(time.Second)
		})
		expectData(t, s, "entered a@1", "left a@1")
	})
}

// TestConditionNew: objects that exist when a route is new count as existing: delivered, or tracked
// and never reported.
func TestConditionNew(t *testing.T) {
	// Guarantee: left
	for _, existing := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &recordingSink{}
			b := start(t, spec.Settings{Name: "old", Version: "1", Sinks: to(&recordingSink{})})
			change, err := b.Prepare([]spec.Settings{
				{Name: "old", Version: "1", Sinks: to(&recordingSink{})},
				{Name: "new", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: []spec.NamedSink{{Name: "new", Sink: s}}, Existing: existing, When: spec.When{Filter: whenOn, Version: "1"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			change.Swap()
			for _, there := range []*event.Delta{conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, false)} {
				there.Initial = true
				if commit := change.Existing(t.Context(), there); commit != nil {
					commit.Commit()
				}
			}
			change.Finish(t.Context())
			b.admit(conditionDelta(t, event.Updated, "b", 3, true), conditionDelta(t, event.Updated, "a", 4, false), conditionDelta(t, event.Updated, "b", 5, false))
			pass(time.Minute)
			want := []string{"entered b@3", "left b@5"}
			if existing {
				want = []string{"entered a@1", "left a@4", "entered b@3", "left b@5"}
			}
			got := s.data()
			slices.SortFunc(got, func(a, b string) int { return int(a[len(a)-1]) - int(b[len(b)-1]) })
			slices.SortFunc(want, func(a, b string) int { return int(a[len(a)-1]) - int(b[len(b)-1]) })
			if !slices.Equal(got, want) || b.NeedsRescan("new") {
				t.Errorf("existing %v: reported %q, want %q", existing, got, want)
			}
		})
	}
}

// rescanAll passes objects through a route in one rescan.
func rescanAll(t *testing.T, b *harness, complete bool, deltas ...*event.Delta) {
	t.Helper()
	rescan, err := b.Rescan("r")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deltas {
		d.Op = event.Sync
		commit, err := rescan.Admit(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if commit != nil {
			commit.Commit()
		}
	}
	rescan.End(func(string) bool { return complete })
}

// TestConditionChanged: a reload that changes a condition causes a rescan, and the differences are
// reported; a reload that does not change it causes none. Pending conditions are not reported
// before the rescan. The same applies to a restart with another condition, and to a restart after
// which there was no rescan.
func TestConditionChanged(t *testing.T) {
	// Guarantee: conditions-reconfigured, reevaluate
	whenOff := filters.Func(func(_ context.Context, d *event.Delta) (bool, error) { return !isOn(d.New), nil })
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(when filters.Filter, version string, length time.Duration) spec.Settings {
			return spec.Settings{
				Name: "r", Version: version + length.String(), Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s), Known: true,
				When: spec.When{Filter: when, Version: version, For: length, Resource: resourceOf, Object: fakeCache(conditionObject(t, "b", "uid-b", 2, false))},
			}
		}
		b := openAs(t, pipeline.Config{Store: d}, route(whenOn, "on", 0))
		b.Start(t.Context())
		if !b.NeedsRescan("r") {
			t.Error("it was a filter before, and needs no look")
		}
		rescanAll(t, b, true)
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, false), conditionDelta(t, event.Added, "c", 3, true))
		d.cut(b)
		pass(time.Second)
		s.events = nil
		change := func(r spec.Settings) {
			c, err := b.Prepare([]spec.Settings{r})
			if err != nil {
				t.Fatal(err)
			}
			c.Swap()
			c.Finish(t.Context())
		}
		change(route(whenOn, "on", time.Minute))
		if b.NeedsRescan("r") {
			t.Error("it is as it was, and needs a look")
		}
		change(route(whenOff, "off", time.Minute))
		if !b.NeedsRescan("r") {
			t.Error("it has changed, and needs no look")
		}
		b.admit(conditionDelta(t, event.Updated, "d", 4, false))
		pass(2 * time.Minute)
		d.cut(b)
		pass(time.Second)
		expectData(t, s) // not before the rescan
		rescanAll(t, b, false, conditionDelta(t, event.Sync, "a", 1, true), conditionDelta(t, event.Sync, "b", 2, false))
		d.cut(b)
		pass(time.Second)
		expectDataOfObjects(t, s, "entered d@4", "left a@1")
		s.events = nil
		pass(time.Minute)
		d.cut(b)
		pass(time.Second)
		expectData(t, s, "entered b@2")
		s.events = nil
		rescanAll(t, b, true, conditionDelta(t, event.Sync, "b", 2, false), conditionDelta(t, event.Sync, "d", 4, false))
		d.cut(b)
		pass(time.Second)
		expectData(t, s, "left c@3")
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for version, want := range map[string]bool{"off": false, "on": true} {
			runOnce(t, d, route(whenOff, version, 0), func(b *harness) {
				if got := b.NeedsRescan("r"); got != want {
					t.Errorf("after a restart as %q: needs a look %v", version, got)
				}
			})
		}
	})
}

// TestConditionRenamed: a route with a new name continues with the state of the condition, even
// after a crash at any moment.
func TestConditionRenamed(t *testing.T) {
	// Guarantee: conditions-reconfigured
	synctest.Test(t, func(t *testing.T) {
		d, s := &flakyStore{fakeStore: fakeStore{}}, &recordingSink{}
		route := func(name string) spec.Settings {
			return spec.Settings{
				Name: name, ID: "id", Sources: []string{"pods"}, Ops: edges, Handler: describingHandler, Sinks: to(s),
				When: spec.When{Filter: whenOn, Version: "1", Resource: resourceOf},
			}
		}
		b := openAs(t, pipeline.Config{Store: d}, route("old"))
		b.Start(t.Context())
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, true))
		d.cut(b)
		pass(time.Second)
		d.cut(b)
		c, err := b.Prepare([]spec.Settings{route("new")})
		if err != nil {
			t.Fatal(err)
		}
		c.Swap()
		b.admit(conditionDelta(t, event.Updated, "a", 3, false))
		d.cut(b)
		c.Finish(t.Context())
		pass(time.Second)
		d.cut(b)
		s.events = nil
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b = openAs(t, pipeline.Config{Store: d}, route("new"))
		d.restore(b, "id")
		if b.NeedsRescan("new") {
			t.Error("nothing has changed but the name, and it needs a look")
		}
		b.Start(t.Context())
		b.admit(conditionDelta(t, event.Updated, "a", 4, false), conditionDelta(t, event.Deleted, "b", 2, true))
		d.cut(b)
		pass(time.Second)
		expectData(t, s, "left b@2")
	})
}

// TestConditionFails: if the evaluation fails, the delta becomes a dead letter, no report is made,
// and a pending condition starts again.
func TestConditionFails(t *testing.T) {
	// Guarantee: condition-errors
	synctest.Test(t, func(t *testing.T) {
		s, fails := &recordingSink{}, false
		b := start(t, spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{For: time.Minute, Filter: filters.Func(
			func(_ context.Context, d *event.Delta) (bool, error) {
				if fails {
					return false, cel.ErrCost
				}
				return isOn(d.New), nil
			})}})
		b.admit(conditionDelta(t, event.Added, "a", 1, true))
		pass(2 * time.Minute)
		b.admit(conditionDelta(t, event.Added, "b", 2, true))
		fails = true
		b.admit(conditionDelta(t, event.Updated, "a", 3, true), conditionDelta(t, event.Updated, "b", 4, true))
		pass(2 * time.Minute)
		fails = false
		expectData(t, s, "entered a@1")
		if got := b.letters.got(); !slices.Equal(got, []string{"a@3 ", "b@4 "}) {
			t.Errorf("dead letters: %q", got)
		}
		b.admit(conditionDelta(t, event.Updated, "a", 5, false))
		pass(time.Second)
		expectData(t, s, "entered a@1", "left a@5")
		b.balanced("r")
	})
}

// TestConditionLimit: a limit that suppresses an Entered suppresses its Left, too, and never the
// Left of a reported condition.
func TestConditionLimit(t *testing.T) {
	// Guarantee: left
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		all := func(context.Context, *event.Delta) (string, error) { return "all", nil }
		b := start(t, spec.Settings{
			Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{Filter: whenOn, For: time.Second}, Limit: spec.Limit{Key: all, Every: time.Hour},
		})
		b.admit(conditionDelta(t, event.Added, "a", 1, true))
		pass(time.Minute)
		b.admit(conditionDelta(t, event.Added, "b", 2, true))
		pass(time.Minute)
		b.admit(conditionDelta(t, event.Updated, "b", 3, false), conditionDelta(t, event.Updated, "a", 4, false))
		pass(time.Minute)
		expectData(t, s, "entered a@1", "left a@4")
		b.balanced("r")
	})
}

// TestConditionTable: a condition ends even if the table does not evaluate it, because a constant
// differs.
func TestConditionTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": nil}})
		if err != nil {
			t.Fatal(err)
		}
		program, err := env.Compile(`object.spec.on == true && object.metadata.name != "x"`, cel.When, "pods")
		if err != nil {
			t.Fatal(err)
		}
		s := &recordingSink{}
		b := start(t, spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{Filter: filters.NewCEL(filters.CELConfig{Program: program})}})
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Updated, "a", 2, false), conditionDelta(t, event.Added, "b", 3, true), conditionDelta(t, event.Deselected, "b", 4, true))
		pass(time.Minute)
		got := s.data()
		slices.SortFunc(got, func(a, b string) int { return int(a[len(a)-1]) - int(b[len(b)-1]) })
		if !slices.Equal(got, []string{"entered a@1", "left a@2", "entered b@3", "left b@4"}) {
			t.Errorf("reported %q", got)
		}
	})
}

// TestConditionAgain: repeating an unchanged object changes nothing; a requested reminder is made.
func TestConditionAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSink{}
		b := start(t, spec.Settings{Name: "r", Ops: edges, Handler: describingHandler, Sinks: to(s), When: spec.When{Filter: whenOn}})
		b.admit(conditionDelta(t, event.Added, "a", 1, true), conditionDelta(t, event.Added, "b", 2, false))
		pass(time.Second)
		for _, admit := range []func(context.Context, string, *event.Delta) (event.Admission, error){b.AdmitTo, b.RemindTo} {
			for _, d := range []*event.Delta{conditionDelta(t, event.Sync, "a", 1, true), conditionDelta(t, event.Sync, "b", 2, false)} {
				commit, err := admit(t.Context(), "r", d)
				if err != nil {
					t.Fatal(err)
				}
				if commit != nil {
					commit.Commit()
				}
			}
			pass(time.Second)
		}
		expectData(t, s, "entered a@1", "entered a@1 repeat 1")
		if all, _, ok := b.Active("r", pipeline.Holding{}, 10); !ok || len(all) != 1 || all[0].Key.Name != "a" || all[0].State != "entered" || all[0].Repeat != 1 {
			t.Errorf("active: %+v, %v", all, ok)
		}
	})
}
