package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// tenMinutes is a limit by the first character of names.
func tenMinutes(burst int) *rules.LimitConfig {
	return &rules.LimitConfig{Every: 10 * time.Minute, Burst: burst}
}

func (b *bench) forward(to time.Duration) { b.clock.Advance(start.Add(to)) }

// A suppressed condition is reported when the limit allows it, if it still holds; Left is reported
// for a key once the condition holds for none of its objects.
func TestConditionsLimit(t *testing.T) {
	// Guarantee: limit-of-conditions
	for _, tt := range []struct {
		name  string
		cfg   rules.ConditionConfig
		burst int
		steps func(b *bench)
		want  []string
	}{
		{"the second object stays broken, and the first recovers", rules.ConditionConfig{}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.forward(time.Minute)
			b.see("added", "a1", "2")
			b.forward(2 * time.Minute)
			b.see("updated!", "a0", "1")
			b.forward(48 * time.Hour)
			b.see("updated!", "a1", "2")
		}, []string{"0s entered a0/1@1 since 0s", "10m0s entered a1/2@2 since 1m0s", "48h0m0s left a1/2@4 since 1m0s"}},
		{"one after another, with how many more wait", rules.ConditionConfig{}, 1, func(b *bench) {
			for i := range 4 {
				b.see("added", fmt.Sprint("a", i), "1")
			}
			b.see("added", "b", "1")
			b.forward(time.Hour)
		}, []string{
			"0s entered a0/1@1 since 0s", "0s entered b/1@5 since 0s",
			"10m0s entered a1/1@2 since 0s +2", "20m0s entered a2/1@3 since 0s +1", "30m0s entered a3/1@4 since 0s",
		}},
		{"what ended unreported is counted", rules.ConditionConfig{}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.see("added", "a1", "1")
			b.see("updated!", "a1", "1")
			b.see("updated", "a1", "1")
			b.see("added", "a2", "1")
			b.see("deleted", "a2", "1")
			b.forward(time.Hour)
		}, []string{"0s entered a0/1@1 since 0s", "10m0s entered a1/1@4 since 0s +2"}},
		{"all is over before the limit allows it again", rules.ConditionConfig{}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.see("added", "a1", "1")
			b.see("updated!", "a0", "1")
			b.forward(time.Minute)
			b.see("updated!", "a1", "1")
			b.see("updated", "a0", "1")
			b.see("updated!", "a0", "1")
			b.forward(time.Hour)
			b.see("updated", "a0", "1")
		}, []string{"0s entered a0/1@1 since 0s", "1m0s left a1/1@4 since 0s +1", "1h0m0s entered a0/1@7 since 1h0m0s +1"}},
		{"each incident has its own count", rules.ConditionConfig{}, 1, func(b *bench) {
			for i := range 3 {
				b.see("added", fmt.Sprint("a", i), "1")
			}
			for i := range 3 {
				b.see("updated!", fmt.Sprint("a", i), "1")
			}
			b.forward(time.Hour)
			b.see("updated", "a0", "1")
		}, []string{"0s entered a0/1@1 since 0s", "0s left a2/1@6 since 0s +2", "1h0m0s entered a0/1@7 since 1h0m0s"}},
		{"the next entered has the count if left is not delivered", rules.ConditionConfig{OnlyEntered: true}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.see("added", "a1", "1")
			b.see("updated!", "a0", "1")
			b.see("updated!", "a1", "1")
			b.forward(time.Hour)
			b.see("updated", "a0", "1")
		}, []string{"0s entered a0/1@1 since 0s", "0s left a1/1@4 since 0s", "1h0m0s entered a0/1@5 since 1h0m0s +1"}},
		{"a key that was reported several times ends once", rules.ConditionConfig{}, 2, func(b *bench) {
			b.see("added", "a0", "1")
			b.see("added", "a1", "1")
			b.see("deleted", "a1", "1")
			b.see("updated!", "a0", "1")
		}, []string{"0s entered a0/1@1 since 0s", "0s entered a1/1@2 since 0s", "0s left a0/1@4 since 0s"}},
		{"what was not reported goes before reminders", rules.ConditionConfig{Every: 10 * time.Minute}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.forward(9 * time.Minute)
			b.see("added", "a1", "1")
			b.forward(21 * time.Minute)
		}, []string{
			"0s entered a0/1@1 since 0s", "10m0s entered a1/1@2 since 9m0s +1", "20m0s entered a0/1@1 since 0s repeat 1",
		}},
		{"for is over before it counts", rules.ConditionConfig{For: 5 * time.Minute}, 1, func(b *bench) {
			b.see("added", "a0", "1")
			b.forward(time.Minute)
			b.see("added", "a1", "1")
			b.forward(5 * time.Minute)
			b.see("updated!", "a0", "1")
			b.forward(time.Hour)
		}, []string{"5m0s entered a0/1@1 since 0s", "5m0s left a0/1@3 since 0s", "15m0s entered a1/1@2 since 1m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newLimitedBench(t, tt.cfg, tenMinutes(tt.burst))
			tt.steps(b)
			slices.Sort(b.edges)
			slices.Sort(tt.want)
			b.expect(tt.want...)
		})
	}
}

// The suppressed conditions and the reports of a key survive a restart, and a limit that is
// changed, removed, or added.
func TestConditionsLimitChanges(t *testing.T) {
	// Guarantee: limit-of-conditions
	cfg := rules.ConditionConfig{Sources: []string{"pods"}}
	b := newLimitedBench(t, cfg, tenMinutes(1))
	restart := func(at time.Duration) {
		b.save()
		b.restart(cfg, start.Add(at))
	}
	b.see("added", "a0", "1")
	b.see("added", "a1", "1")
	restart(time.Minute)
	b.see("updated!", "a0", "1")
	restart(2 * time.Minute) // only the suppressed records show now that the key was reported
	b.see("updated!", "a1", "1")
	b.expect("0s entered a0/1@1 since 0s", "2m0s left a1/1@4 since 0s +1")

	b.see("updated", "a0", "1")
	b.see("updated", "a1", "1")
	restart(30 * time.Minute)
	b.forward(30 * time.Minute)
	if len(b.edges) != 1 {
		t.Fatalf("reported %q, want one of two", b.edges)
	}
	b.Configure(rules.ConditionConfig{Sources: cfg.Sources}, b.clock.Now())
	b.forward(30*time.Minute + 1)
	if len(b.edges) != 2 {
		t.Fatalf("reported %q without a limit", b.edges)
	}
	b.edges = nil
	b.see("updated!", "a0", "1")
	b.see("updated", "a0", "1")
	b.expect("30m0.000000001s left a0/1@7 since 2m0s", "30m0.000000001s entered a0/1@8 since 30m0.000000001s")

	b.Configure(rules.ConditionConfig{Sources: cfg.Sources, Limit: b.limit}, b.clock.Now())
	b.see("updated", "a0", "1")
	b.see("updated", "a1", "1")
	b.see("updated!", "a0", "1")
	b.see("updated!", "a1", "1")
	b.expect("30m0.000000001s left a1/1@12 since 2m0s")
}

// A returned pass lets the next condition be reported.
func TestConditionsLimitReturned(t *testing.T) {
	b := newLimitedBench(t, rules.ConditionConfig{}, tenMinutes(1))
	var passes []*rules.Pass
	b.reported = func(e rules.Edge) { passes = append(passes, e.Pass) }
	b.see("added", "a0", "1")
	b.see("added", "a1", "1")
	b.forward(time.Minute)
	b.limit.Return(passes[0], 0, b.clock.Now())
	b.Rouse(passes[0])
	b.forward(time.Minute + 1)
	b.expect("0s entered a0/1@1 since 0s", "1m0s entered a1/1@2 since 0s")
}

// An object that is not in the cache does not delay the suppressed ones behind it.
func TestConditionsLimitMissing(t *testing.T) {
	b := newLimitedBench(t, rules.ConditionConfig{}, tenMinutes(1))
	for _, name := range []string{"a0", "a1", "a2"} {
		b.see("added", name, "1")
	}
	b.Missing(b.Of("pods", event.Key{Name: "a1"}), start)
	b.forward(21 * time.Minute)
	b.expect("0s entered a0/1@1 since 0s", "10m0s entered a2/1@3 since 0s +1", "20m0s entered a1/1@2 since 0s")
}

// limitTruth is the state of each object and key: whether the condition holds, and the reports.
type limitTruth struct {
	t             *rapid.T
	b             *bench
	cfg           rules.ConditionConfig
	since         map[string]time.Time // of each object for which it holds
	reportedNames map[string]bool
	reported      map[string]bool
	passed        map[string][]time.Time
	unreported    map[string]int // by key: the ends since the last Entered
}

// of lists the objects of a key that are reported, or would be without the limit.
func (l *limitTruth) of(key string) (names []string) {
	for name, since := range l.since {
		if keyOf(name) == key && (l.reportedNames[name] || !since.Add(l.cfg.For).After(l.b.clock.Now())) {
			names = append(names, name)
		}
	}
	return names
}

func (l *limitTruth) check(e rules.Edge) {
	name, now := e.Key().Name, l.b.clock.Now()
	key := keyOf(name)
	if e.Op == event.Left {
		if left := l.of(key); len(left) > 0 || !l.reported[key] {
			l.t.Fatalf("%s, which holds for %v, reported: %v", l.b.show(e.Delta), left, l.reported[key])
		}
		l.reported[key] = false
		l.told(e, l.unreported[key])
		return
	}
	since, holds := l.since[name]
	if !holds || since.Add(l.cfg.For).After(now) || l.reportedNames[name] != (e.Repeat > 0) {
		l.t.Fatalf("%s, which holds: %v, since %v, reported: %v", l.b.show(e.Delta), holds, since.Sub(start), l.reportedNames[name])
	}
	l.reportedNames[name], l.reported[key] = true, true
	l.passed[key] = append(l.passed[key], now)
	within(l.t, key, l.passed[key], *l.b.limited)
	waiting := 0
	for _, other := range l.of(key) {
		if !l.reportedNames[other] && l.b.Of("pods", event.Key{Name: other}) != nil {
			waiting++
		}
	}
	if l.told(e, l.unreported[key]+waiting) {
		l.passed[key] = l.passed[key][:len(l.passed[key])-1]
	}
}

// told checks the suppressed count of an edge. Sometimes it returns the pass of the edge, and true.
func (l *limitTruth) told(e rules.Edge, want int) (returned bool) {
	key := keyOf(e.Key().Name)
	if l.cfg.Every == 0 && l.cfg.For == 0 && e.Suppressed != want {
		l.t.Fatalf("%s, want %d", l.b.show(e.Delta), want)
	}
	unreported := l.unreported[key]
	l.unreported[key] = 0
	if e.Pass == nil || rapid.IntRange(0, 4).Draw(l.t, "nothing comes of it") > 0 {
		return false
	}
	l.b.limit.Return(e.Pass, unreported, l.b.clock.Now())
	l.b.Rouse(e.Pass)
	l.unreported[key] = unreported
	return true
}

// TestConditionsLimitModel: in any sequence, no more reports of a key are made than its limit
// allows; Left is reported at once when the condition holds for none of its objects, if it was
// reported; and in the end all conditions that hold are reported.
func TestConditionsLimitModel(t *testing.T) {
	// Guarantee: limit-of-conditions
	rapid.Check(t, func(rt *rapid.T) {
		cfg := rules.ConditionConfig{
			Sources: []string{"pods"},
			For:     time.Duration(rapid.SampledFrom([]int{0, 0, 60}).Draw(rt, "for")) * time.Second,
			Every:   time.Duration(rapid.SampledFrom([]int{0, 0, 45}).Draw(rt, "every")) * time.Second,
		}
		limited := &rules.LimitConfig{Every: 100 * time.Second, Burst: rapid.IntRange(1, 2).Draw(rt, "burst")}
		b := newLimitedBench(t, cfg, limited)
		l := &limitTruth{
			t: rt, b: b, cfg: cfg, since: map[string]time.Time{}, reportedNames: map[string]bool{}, reported: map[string]bool{},
			passed: map[string][]time.Time{}, unreported: map[string]int{},
		}
		b.reported = l.check
		names := []string{"a1", "a2", "a3", "b1", "b2"}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now := b.clock.Now()
			switch rapid.SampledFrom([]string{"see", "see", "see", "time", "restart"}).Draw(rt, "step") {
			case "see":
				l.see(rapid.SampledFrom(names).Draw(rt, "object"), rapid.SampledFrom([]string{"updated", "updated!", "deleted"}).Draw(rt, "op"))
			case "time":
				b.clock.Advance(now.Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second))
			case "restart":
				b.save()
				b.restart(cfg, now.Add(time.Duration(rapid.SampledFrom([]int{0, 30, 120, 86400}).Draw(rt, "down"))*time.Second))
				b.clock.Advance(b.clock.Now())
			}
			for key, reported := range l.reported {
				if reported && len(l.of(key)) == 0 {
					rt.Fatalf("%q is over, and that is not reported: %q", key, b.edges)
				}
			}
		}
		b.clock.Advance(b.clock.Now().Add(10 * limited.Every))
		for _, name := range slices.Sorted(maps.Keys(l.since)) {
			if !l.reportedNames[name] {
				rt.Fatalf("%s holds, and that is not reported: %q", name, b.edges)
			}
		}
		for _, name := range names {
			l.see(name, "deleted")
		}
		b.save()
		if waiting, active := b.Counts(); waiting+active+b.wheel.Len()+len(b.saved) > 0 {
			rt.Fatalf("%d and %d are known, %d timers are set, %d are saved", waiting, active, b.wheel.Len(), len(b.saved))
		}
	})
}

func (l *limitTruth) see(name, op string) {
	now := l.b.clock.Now()
	since, held := l.since[name]
	switch {
	case l.b.last[name] == nil && op == "deleted":
		return
	case l.b.last[name] == nil && op == "updated":
		op = "added"
	}
	if op == "added" || op == "updated" {
		if !held {
			l.since[name] = now
		}
	} else {
		if held && !l.reportedNames[name] && !since.Add(l.cfg.For).After(now) {
			l.unreported[keyOf(name)]++
		}
		delete(l.since, name)
		delete(l.reportedNames, name)
	}
	l.b.see(op, name, "1")
}
