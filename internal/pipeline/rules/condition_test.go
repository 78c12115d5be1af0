package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/pipeline/rules"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

var resource = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "c"}

func object(t testing.TB, name, uid string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, uid, version))
	must.Succeed(t, err)
	return o
}

// bench is conditions with a clock, and their reports.
type bench struct {
	t     testing.TB
	clock *timer.Fake
	wheel *timer.Wheel
	*rules.Conditions

	limited  *rules.LimitConfig // nil: there is no limit
	limit    *rules.Limit       // by the first character of a name
	reported func(rules.Edge)   // nil: not called

	saved, savedLimit map[string]string // the records of the checkpoint
	last              map[string]*event.Object
	number            int
	edges             []string
}

func newBench(t testing.TB, cfg rules.ConditionConfig) *bench {
	return newLimitedBench(t, cfg, nil)
}

func newLimitedBench(t testing.TB, cfg rules.ConditionConfig, limited *rules.LimitConfig) *bench {
	cfg.Sources = []string{"pods"}
	b := &bench{t: t, limited: limited, saved: map[string]string{}, savedLimit: map[string]string{}, last: map[string]*event.Object{}}
	b.restart(cfg, start)
	return b
}

func keyOf(name string) string { return name[:1] }

// restart creates everything again from the saved records.
func (b *bench) restart(cfg rules.ConditionConfig, at time.Time) {
	b.clock = timer.NewFake(at)
	b.wheel = timer.NewWheel(b.clock)
	if b.limited != nil {
		b.limit = rules.NewLimit(*b.limited, nil, at)
		for key, value := range b.savedLimit {
			must.Succeed(b.t, b.limit.Restore(rules.Record{Key: key, Value: []byte(value)}, at))
		}
	}
	cfg.Limit = b.limit
	b.Conditions = rules.NewConditions(cfg, b.wheel, rules.NewCensus(), nil, func(s *rules.Conditions, c *rules.Condition) {
		if edge, ok := s.Fire(c, keyOf(c.Object().Key().Name), b.clock.Now()); ok {
			b.report(edge)
		}
	})
	for key, value := range b.saved {
		err := b.Restore(rules.Record{Key: key, Value: []byte(value)}, func(string) *event.Resource { return resource }, b.clock.Now())
		must.Succeed(b.t, err)
	}
	for c := range b.All() {
		c.Learn(b.last[c.Object().Key().Name])
	}
}

func (b *bench) save() {
	for _, r := range b.Dirty(b.clock.Now()) {
		if delete(b.saved, r.Key); r.Value != nil {
			b.saved[r.Key] = string(r.Value)
		}
	}
	if b.limit == nil {
		return
	}
	for _, r := range b.limit.Dirty(b.clock.Now()) {
		if delete(b.savedLimit, r.Key); r.Value != nil {
			b.savedLimit[r.Key] = string(r.Value)
		}
	}
}

func (b *bench) report(edges ...rules.Edge) {
	for _, e := range edges {
		b.edges = append(b.edges, b.show(e.Delta))
		if b.reported != nil {
			b.reported(e)
		}
	}
}

// show formats an edge: when, op, name/uid@version, since when, and flags.
func (b *bench) show(e *event.Delta) string {
	o := e.Object()
	text := fmt.Sprintf("%s %s %s/%s@%s since %s", b.clock.Now().Sub(start), e.Op, o.Key().Name, o.UID(), o.ResourceVersion(), e.Since.Sub(start))
	if e.Repeat > 0 {
		text += fmt.Sprintf(" repeat %d", e.Repeat)
	}
	if e.Late {
		text += " late"
	}
	if e.Suppressed > 0 {
		text += fmt.Sprintf(" +%d", e.Suppressed)
	}
	if seen := e.Seen.Sub(start); !e.Seen.Equal(b.clock.Now()) {
		text += fmt.Sprintf(" seen %s", seen)
	}
	return text
}

// see has an object observed: op is added, updated, listed (updated, from a list), same (listed,
// and has not changed), existing or sync, with a ! if the condition does not hold, or deleted, or
// deselected.
func (b *bench) see(op, name, uid string) {
	b.t.Helper()
	op, not := strings.CutSuffix(op, "!")
	d := &event.Delta{Source: "pods", Seen: b.clock.Now(), Op: event.Updated, Old: b.last[name]}
	b.number++
	switch op {
	case "listed":
		transit.Of(d).Listed = true
	case "same":
		transit.Of(d).Listed = true
		b.number--
	case "existing":
		d.Op, d.Initial, d.Old = event.Added, true, nil
	case "sync":
		d.Op, d.Old = event.Sync, nil
		b.number--
	default:
		d.Op, _ = event.ParseOp(op)
	}
	if d.Op == event.Deleted || d.Op == event.Deselected {
		delete(b.last, name)
	} else {
		d.New = object(b.t, name, uid, b.number)
		if op == "sync" || op == "same" {
			d.New = b.last[name]
		}
		b.last[name] = d.New
	}
	b.report(b.Observe(d, !not, d.Initial, keyOf(name), b.clock.Now(), nil)...)
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.edges, want) {
		b.t.Errorf("reported\n\t%s\nwant\n\t%s", strings.Join(b.edges, "\n\t"), strings.Join(want, "\n\t"))
	}
	b.edges = nil
}

// Each transition of the state machine.
func TestConditions(t *testing.T) {
	// Guarantee: left, clock-jumps, conditions-gap
	tests := map[string]struct {
		cfg rules.ConditionConfig
		// an op and the name of an object, a duration to let go by, save, or restart and how the
		// wall clock goes on
		steps string
		want  []string
	}{
		"at once": {steps: "added a, updated a, updated! a, updated! a, updated a, deleted a", want: []string{
			"0s entered a/1@1 since 0s", "0s left a/1@3 since 0s", "0s entered a/1@5 since 0s", "0s left a/1@5 since 0s",
		}},
		"never":      {steps: "added! a, updated! a, deleted a, added! a, deselected a"},
		"deselected": {steps: "added a, 1s, deselected a", want: []string{"0s entered a/1@1 since 0s", "1s left a/1@1 since 0s"}},
		"for": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 59s, updated a, 2s, 10s, updated! a", want: []string{
			"1m0s entered a/1@2 since 0s", "1m11s left a/1@3 since 0s",
		}},
		"too short": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 59s, updated! a, 1s, updated a, 59s, deleted a, 1h"},
		"every": {cfg: rules.ConditionConfig{For: time.Minute, Every: 10 * time.Minute}, steps: "added a, 25m, updated! a, 1h", want: []string{
			"1m0s entered a/1@1 since 0s", "11m0s entered a/1@1 since 0s repeat 1", "21m0s entered a/1@1 since 0s repeat 2",
			"25m0s left a/1@2 since 0s",
		}},
		"every, at once": {cfg: rules.ConditionConfig{Every: time.Minute}, steps: "added a, 90s, deleted a, 1h", want: []string{
			"0s entered a/1@1 since 0s", "1m0s entered a/1@1 since 0s repeat 1", "1m30s left a/1@1 since 0s",
		}},
		"existing, skipped": {cfg: rules.ConditionConfig{Every: time.Second}, steps: "existing a, 1m, updated a, updated! a, updated a", want: []string{
			"1m0s entered a/1@4 since 1m0s",
		}},
		"existing, delivered": {cfg: rules.ConditionConfig{Existing: true}, steps: "existing a, existing! b, updated b", want: []string{
			"0s entered a/1@1 since 0s", "0s entered b/1@3 since 0s",
		}},
		"another uid": {steps: "added a, added a 2, added! a 3", want: []string{
			"0s entered a/1@1 since 0s", "0s left a/1@1 since 0s", "0s entered a/2@2 since 0s", "0s left a/2@2 since 0s",
		}},
		"gap": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, added b, 50s, listed a, 10s, 50s, listed b, updated! b", want: []string{
			"1m0s entered b/1@2 since 0s", "1m50s entered a/1@3 since 50s", "1m50s left b/1@5 since 0s",
		}},
		"a gap is kept": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, save, 50s, listed a, save, restart 0s, 59s, 1s", want: []string{
			"1m50s entered a/1@2 since 50s",
		}},
		"a gap of what is late": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, save, restart 10m, listed a, 59s, 1s", want: []string{
			"11m0s entered a/1@2 since 10m0s",
		}},
		"seen first once more is a gap": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 50s, added a, 59s, 1s", want: []string{
			"1m50s entered a/1@2 since 50s",
		}},
		"no gap": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 30s, updated a, 10s, same a, 20s", want: []string{
			"1m0s entered a/1@2 since 0s",
		}},
		"time makes it hold, and end": {steps: "added! a, 1h, sync a, 1h, sync a, sync! a, sync a", want: []string{
			"1h0m0s entered a/1@1 since 1h0m0s", "2h0m0s left a/1@1 since 1h0m0s", "2h0m0s entered a/1@1 since 2h0m0s",
		}},
		"restart": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 30s, save, restart 10s, 20s, 1h", want: []string{
			"1m0s entered a/1@1 since 0s",
		}},
		"late": {cfg: rules.ConditionConfig{For: time.Minute, Every: time.Hour}, steps: "added a, 30s, save, restart 10m, 0s, save, restart 2h, 0s, deleted a", want: []string{
			"10m30s entered a/1@1 since 0s late seen 1m0s", "2h10m30s entered a/1@1 since 0s repeat 1 late seen 1h10m30s", "2h10m30s left a/1@1 since 0s",
		}},
		"a crash forgets nothing that was saved": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, save, 2m, restart 0s, 0s", want: []string{
			"1m0s entered a/1@1 since 0s", "2m0s entered a/1@1 since 0s late seen 1m0s",
		}},
		"the clock goes back while it is down": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, 30s, save, restart -24h, 59s, 1s", want: []string{
			"-23h58m30s entered a/1@1 since -23h59m30s",
		}},
		"the clock goes far ahead": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, save, restart 87600h, 0s", want: []string{
			"87600h0m0s entered a/1@1 since 0s late seen 1m0s",
		}},
		"reported, skipped and ended stay so": {cfg: rules.ConditionConfig{}, steps: "existing a, added b, added c, updated! c, save, restart 1h, 1h, updated a, updated b, deleted a, deleted b, updated c", want: []string{
			"0s entered b/1@2 since 0s", "0s entered c/1@3 since 0s", "0s left c/1@4 since 0s", "2h0m0s left b/1@6 since 0s", "2h0m0s entered c/1@9 since 2h0m0s",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.cfg)
			test.cfg.Sources = []string{"pods"}
			for step := range strings.SplitSeq(test.steps, ", ") {
				words := append(strings.Fields(step), "1")
				length, err := time.ParseDuration(words[0])
				switch {
				case err == nil:
					b.clock.Advance(b.clock.Now().Add(length))
				case words[0] == "save":
					b.save()
				case words[0] == "restart":
					length, _ = time.ParseDuration(words[1])
					b.restart(test.cfg, b.clock.Now().Add(length))
				default:
					b.see(words[0], words[1], words[2])
				}
			}
			b.expect(test.want...)
		})
	}
}

// A changed `for` changes the due times of pending conditions, counted from their start; a changed
// `every` those of reminders.
func TestConditionsConfigure(t *testing.T) {
	// Guarantee: conditions-reconfigured
	cfg := rules.ConditionConfig{Sources: []string{"pods"}, For: time.Hour}
	b := newBench(t, cfg)
	forward := func(d time.Duration) { b.clock.Advance(b.clock.Now().Add(d)) }
	b.see("added", "a", "1")
	b.see("added", "b", "1")
	forward(10 * time.Minute)
	cfg.For = 20 * time.Minute
	b.Configure(cfg, b.clock.Now())
	b.see("deleted", "b", "1")
	forward(10 * time.Minute)
	b.expect("20m0s entered a/1@1 since 0s")
	cfg.Every = time.Hour
	b.Configure(cfg, b.clock.Now())
	forward(30 * time.Minute)
	cfg.Every = 45 * time.Minute
	b.Configure(cfg, b.clock.Now())
	forward(20 * time.Minute)
	b.expect("1h5m0s entered a/1@1 since 0s repeat 1")
	b.see("added", "c", "1")
	forward(time.Minute)
	cfg.For, cfg.Every = 0, 0
	b.Configure(cfg, b.clock.Now())
	forward(0)
	b.expect("1h11m0s entered c/1@4 since 1h10m0s") // due, and so seen, now
	cfg.Sources = []string{"nodes", "pods"}
	b.Configure(cfg, b.clock.Now())
	b.see("updated!", "c", "1")
	b.expect("1h11m0s left c/1@5 since 1h10m0s")
	b.see("added", "d", "1")
	cfg.Sources = []string{"nodes"}
	b.Configure(cfg, b.clock.Now())
	b.expect("1h11m0s entered d/1@6 since 1h11m0s")
	cfg.Sources = []string{"nodes", "pods"} // back before the route has looked at all objects
	b.Configure(cfg, b.clock.Now())
	b.see("updated", "d", "1")
	b.report(b.End((*rules.Condition).Former, b.clock.Now(), nil)...)
	b.expect()
	cfg.Sources = []string{"nodes"}
	b.Configure(cfg, b.clock.Now())
	b.report(b.End((*rules.Condition).Former, b.clock.Now(), nil)...)
	slices.Sort(b.edges)
	b.expect("1h11m0s left a/1@1 since 0s", "1h11m0s left d/1@7 since 1h11m0s")
	b.save()
	if waiting, active := b.Counts(); waiting+active+len(b.saved)+b.wheel.Len() > 0 {
		t.Errorf("%d and %d are known, %d are saved, and %d timers set", waiting, active, len(b.saved), b.wheel.Len())
	}
}

// After a rescan, the reported conditions of objects that no longer exist have ended, as far as all
// objects were listed.
func TestConditionsEnd(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{})
	for _, name := range []string{"a", "b", "c"} {
		b.see("added", name, "1")
	}
	b.edges = nil
	b.Begin()
	b.see("sync", "a", "1")
	b.see("sync!", "b", "1")
	b.report(b.End(func(*rules.Condition) bool { return false }, b.clock.Now(), nil)...)
	b.expect("0s left b/1@2 since 0s")
	b.report(b.End(func(c *rules.Condition) bool { return !c.Visited() }, b.clock.Now(), nil)...)
	b.expect("0s left c/1@3 since 0s")
}

// The ids of reports: the same after a crash, and different each time that the condition holds,
// even without a change of the object.
func TestConditionsIDs(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{Every: time.Minute})
	ids := map[string]string{}
	var edges []rules.Edge
	now := start
	see := func(op event.Op, holds bool) {
		d := &event.Delta{Source: "pods", Op: op, New: object(t, "a", "1", 7), Seen: now}
		edges = b.Observe(d, holds, false, "", now, edges)
	}
	see(event.Updated, true)
	see(event.Updated, false)
	for range 2 {
		now = now.Add(time.Hour)
		see(event.Sync, true)
		see(event.Sync, false)
	}
	for _, e := range edges {
		id := event.New(e.Delta, "r", 0, nil).ID
		if of := b.show(e.Delta); ids[id] != "" {
			t.Errorf("%s and %s have one id", ids[id], of)
		} else {
			ids[id] = of
		}
	}
	again := newBench(t, rules.ConditionConfig{})
	later := start.Add(time.Hour) // a crash: it is seen again
	d := &event.Delta{Source: "pods", Op: event.Updated, New: object(t, "a", "1", 7), Seen: later}
	if e := again.Observe(d, true, false, "", later, nil)[0]; ids[event.New(e.Delta, "r", 0, nil).ID] == "" {
		t.Error("after a crash it has another id")
	}
}

// A damaged record is an error, and no part of it is kept.
func TestConditionsBroken(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{For: time.Minute})
	b.see("added", "a", "1")
	b.save()
	for key, value := range b.saved {
		for _, r := range []rules.Record{{Key: "x", Value: []byte(value)}, {Key: key}, {Key: key, Value: []byte(value[:4])}, {Key: key, Value: append([]byte{9}, value[1:]...)}} {
			again := newBench(t, rules.ConditionConfig{})
			if err := again.Restore(r, func(string) *event.Resource { return resource }, start); err == nil || again.wheel.Len() > 0 {
				t.Errorf("%q is taken", r)
			}
		}
	}
}

// A dropped condition leaves no timer and no entry of the index.
func TestConditionsForgotten(t *testing.T) {
	for _, cfg := range []rules.ConditionConfig{{For: time.Minute}, {Every: time.Minute}} {
		cfg.Sources = []string{"pods"}
		wheel, census := timer.NewWheel(timer.NewFake(start)), rules.NewCensus()
		s := rules.NewConditions(cfg, wheel, census, nil, nil)
		o := object(t, "a", "1", 1)
		for _, closes := range []bool{false, true} {
			s.Observe(&event.Delta{Source: "pods", Op: event.Added, New: o}, true, false, "", start, nil)
			if wheel.Len() != 1 || !census.MayContain("pods", o.Key()) {
				t.Fatalf("%d timers are set", wheel.Len())
			}
			if closes {
				s.Close()
			} else {
				s.Observe(&event.Delta{Source: "pods", Op: event.Deleted, Old: o}, false, false, "", start, nil)
			}
			if waiting, active := s.Counts(); wheel.Len() != 0 || census.MayContain("pods", o.Key()) || s.Knows("pods", o.Key()) || waiting+active > 0 {
				t.Errorf("%d timers are set, it may be known: %v", wheel.Len(), census.MayContain("pods", o.Key()))
			}
			if records := s.Dirty(start); len(records) > 0 {
				t.Errorf("%v is handed over", records)
			}
		}
	}
}

// An object is not in the cache when the timer of a restored condition expires: its end may still
// be to come.
func TestConditionsMissing(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{Every: time.Hour})
	b.see("added", "a", "1")
	for c := range b.All() {
		b.Missing(c, start.Add(10*time.Minute))
	}
	b.clock.Advance(start.Add(2 * time.Hour))
	b.see("deleted", "a", "1")
	b.expect("0s entered a/1@1 since 0s", "1h10m0s entered a/1@1 since 0s repeat 1", "2h0m0s left a/1@1 since 0s")
	b = newBench(t, rules.ConditionConfig{For: time.Hour})
	b.see("added", "a", "1")
	for c := range b.All() {
		b.Missing(c, start)
	}
	b.clock.Advance(start.Add(2 * time.Hour))
	b.see("deleted", "a", "1")
	b.expect()
}

// A restored condition is counted, has its reminders, ends if its source was removed, and is
// dropped if the object was observed since.
func TestConditionsRestored(t *testing.T) {
	cfg := rules.ConditionConfig{For: time.Minute, Every: time.Hour}
	b := newBench(t, cfg)
	cfg.Sources = []string{"pods"}
	b.see("added", "a", "1")
	b.see("added", "b", "1")
	b.clock.Advance(start.Add(time.Minute))
	b.see("added", "c", "1")
	b.save()
	b.edges = nil
	b.restart(cfg, start.Add(50*time.Minute))
	if waiting, active := b.Counts(); waiting != 1 || active != 2 {
		t.Errorf("%d wait, %d are active", waiting, active)
	}
	b.see("deleted", "c", "1")
	b.see("deleted", "b", "1")
	b.edges = nil
	b.clock.Advance(start.Add(3 * time.Hour / 2))
	b.expect("1h1m0s entered a/1@1 since 0s repeat 1")

	for _, r := range []rules.Record{{Key: "nodes\x00\x00x"}, {Key: "pods\x00\x00a"}} {
		r.Value = []byte(b.saved["pods\x00\x00a"])
		must.Report(t, b.Restore(r, func(string) *event.Resource { return resource }, b.clock.Now()))
	}
	b.report(b.End((*rules.Condition).Former, b.clock.Now(), nil)...)
	if len(b.edges) != 1 || !strings.Contains(b.edges[0], " left x/") {
		t.Errorf("reported %q, want the end of x", b.edges)
	}
	if _, active := b.Counts(); active != 1 || b.wheel.Len() != 1 {
		t.Errorf("%d are active, %d timers set", active, b.wheel.Len())
	}
	var gone []string
	for _, r := range b.Dirty(b.clock.Now()) {
		if r.Value == nil {
			gone = append(gone, r.Key)
		}
	}
	if slices.Sort(gone); !slices.Equal(gone, []string{"nodes\x00\x00x", "pods\x00\x00b", "pods\x00\x00c"}) {
		t.Errorf("gone are %q", gone)
	}
}
