package rules_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/rules"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

var resource = &event.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Cluster: "c"}

func object(t testing.TB, name, uid string, version int) *event.Object {
	t.Helper()
	o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, uid, version))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// bench is conditions with a clock, and what they tell.
type bench struct {
	t     testing.TB
	clock *timer.Fake
	wheel *timer.Wheel
	*rules.Conditions

	saved  map[string]string // what a checkpoint has
	last   map[string]*event.Object
	number int
	edges  []string
}

func newBench(t testing.TB, cfg rules.ConditionConfig) *bench {
	cfg.Sources = []string{"pods"}
	b := &bench{t: t, saved: map[string]string{}, last: map[string]*event.Object{}}
	b.restart(cfg, start)
	return b
}

// restart makes everything anew but what was saved.
func (b *bench) restart(cfg rules.ConditionConfig, at time.Time) {
	b.clock = timer.NewFake(at)
	b.wheel = timer.NewWheel(b.clock)
	b.Conditions = rules.NewConditions(cfg, b.wheel, rules.NewCensus(), func(s *rules.Conditions, c *rules.Condition) {
		if edge := s.Fire(c, b.clock.Now()); edge != nil {
			b.tell(edge)
		}
	})
	for key, value := range b.saved {
		err := b.Restore(rules.Record{Key: key, Value: []byte(value)}, func(string) *event.Resource { return resource }, b.clock.Now())
		if err != nil {
			b.t.Fatal(err)
		}
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
}

func (b *bench) tell(edges ...*event.Delta) {
	for _, e := range edges {
		b.edges = append(b.edges, b.show(e))
	}
}

// show writes an edge down: when, op, name/uid@version, since when, and flags.
func (b *bench) show(e *event.Delta) string {
	o := e.Object()
	text := fmt.Sprintf("%s %s %s/%s@%s since %s", b.clock.Now().Sub(start), e.Op, o.Key().Name, o.UID(), o.ResourceVersion(), e.Since.Sub(start))
	if e.Repeat > 0 {
		text += fmt.Sprintf(" repeat %d", e.Repeat)
	}
	if e.Late {
		text += " late"
	}
	if seen := e.Seen.Sub(start); !e.Seen.Equal(b.clock.Now()) {
		text += fmt.Sprintf(" seen %s", seen)
	}
	return text
}

// see has an object observed: op is added, updated, listed (updated, as a list has it), existing or sync, with a ! if the condition does not
// hold, or deleted, or deselected.
func (b *bench) see(op, name, uid string) {
	b.t.Helper()
	op, not := strings.CutSuffix(op, "!")
	d := &event.Delta{Source: "pods", Seen: b.clock.Now(), Op: event.Updated, Old: b.last[name]}
	b.number++
	switch op {
	case "listed":
		d.Listed = true
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
		if op == "sync" {
			d.New = b.last[name]
		}
		b.last[name] = d.New
	}
	b.tell(b.Observe(d, !not, d.Initial, b.clock.Now(), nil)...)
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.edges, want) {
		b.t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(b.edges, "\n\t"), strings.Join(want, "\n\t"))
	}
	b.edges = nil
}

// Each transition of the state machine.
func TestConditions(t *testing.T) {
	tests := map[string]struct {
		cfg   rules.ConditionConfig
		steps string // an op and the name of an object, a duration to let go by, save, or restart and how the wall clock goes on
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
		"existing, skipped": {cfg: rules.ConditionConfig{Skip: true, Every: time.Second}, steps: "existing a, 1m, updated a, updated! a, updated a", want: []string{
			"1m0s entered a/1@4 since 1m0s",
		}},
		"existing, delivered": {cfg: rules.ConditionConfig{}, steps: "existing a, existing! b, updated b", want: []string{
			"0s entered a/1@1 since 0s", "0s entered b/1@3 since 0s",
		}},
		"another uid": {steps: "added a, added a 2, added! a 3", want: []string{
			"0s entered a/1@1 since 0s", "0s left a/1@1 since 0s", "0s entered a/2@2 since 0s", "0s left a/2@2 since 0s",
		}},
		"gap": {cfg: rules.ConditionConfig{For: time.Minute}, steps: "added a, added b, 50s, listed a, 10s, 50s, listed b, updated! b", want: []string{
			"1m0s entered b/1@2 since 0s", "1m50s entered a/1@3 since 50s", "1m50s left b/1@5 since 0s",
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
		"told, skipped and ended stay so": {cfg: rules.ConditionConfig{Skip: true}, steps: "existing a, added b, added c, updated! c, save, restart 1h, 1h, updated a, updated b, deleted a, deleted b, updated c", want: []string{
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

// With another `for` what is pending is due by it, counted from when it began; with another `every` reminders are.
func TestConditionsConfigure(t *testing.T) {
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
	cfg.Sources = []string{"nodes"}
	b.Configure(cfg, b.clock.Now())
	b.save()
	if waiting, active := b.Counts(); waiting+active+len(b.saved)+b.wheel.Len() > 0 {
		t.Errorf("%d and %d are known, %d are saved, and %d timers set", waiting, active, len(b.saved), b.wheel.Len())
	}
}

// What a limit does not let pass is not told, so that its end is not either; a reminder may be.
func TestConditionsSuppress(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{Every: time.Hour})
	b.see("added", "a", "1")
	b.see("added", "b", "1")
	for _, name := range []string{"a", "b"} {
		b.Suppress(&event.Delta{Source: "pods", Op: event.Entered, New: b.last[name]})
	}
	b.see("updated!", "b", "1")
	b.edges = nil
	b.clock.Advance(start.Add(time.Hour))
	b.expect("1h0m0s entered a/1@1 since 0s")
	b.see("updated!", "a", "1")
	b.expect("1h0m0s left a/1@4 since 0s")
}

// After all objects were looked at anew, what was told of one that is not there any more has ended, as far as all were.
func TestConditionsEnd(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{})
	for _, name := range []string{"a", "b", "c"} {
		b.see("added", name, "1")
	}
	b.edges = nil
	b.Begin()
	b.see("sync", "a", "1")
	b.see("sync!", "b", "1")
	b.tell(b.End(func(string) bool { return false }, b.clock.Now(), nil)...)
	b.expect("0s left b/1@2 since 0s")
	b.tell(b.End(func(string) bool { return true }, b.clock.Now(), nil)...)
	b.expect("0s left c/1@3 since 0s")
}

// The ids of what is told: the same after a crash, and different each time that it holds, also if no change of the object made it.
func TestConditionsIDs(t *testing.T) {
	b := newBench(t, rules.ConditionConfig{Every: time.Minute})
	ids := map[string]string{}
	var edges []*event.Delta
	now := start
	see := func(op event.Op, holds bool) {
		d := &event.Delta{Source: "pods", Op: op, New: object(t, "a", "1", 7), Seen: now}
		edges = b.Observe(d, holds, false, now, edges)
	}
	see(event.Updated, true)
	see(event.Updated, false)
	for range 2 {
		now = now.Add(time.Hour)
		see(event.Sync, true)
		see(event.Sync, false)
	}
	for _, e := range edges {
		id := event.NewID(e, "r", 0)
		if of := b.show(e); ids[id] != "" {
			t.Errorf("%s and %s have one id", ids[id], of)
		} else {
			ids[id] = of
		}
	}
	again := newBench(t, rules.ConditionConfig{})
	later := start.Add(time.Hour) // a crash: it is seen again
	d := &event.Delta{Source: "pods", Op: event.Updated, New: object(t, "a", "1", 7), Seen: later}
	if e := again.Observe(d, true, false, later, nil)[0]; ids[event.NewID(e, "r", 0)] == "" {
		t.Error("after a crash it has another id")
	}
}

// What cannot be read is an error, and nothing of it is kept.
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

// reference is the same in a way that cannot be wrong, or slow to read: of each object, what holds and what was told.
type reference struct {
	cfg     rules.ConditionConfig
	objects map[string]*held
	edges   []string
}

type held struct {
	uid     string
	version int
	since   time.Time
	told    bool
	skipped bool
	next    time.Time // zero: nothing is to come
	repeat  int
	late    bool
}

func (r *reference) tell(now time.Time, op, name string, h *held) {
	text := fmt.Sprintf("%s %s %s/%s@%d since %s", now.Sub(start), op, name, h.uid, h.version, h.since.Sub(start))
	if op == "entered" && h.repeat > 0 {
		text += fmt.Sprintf(" repeat %d", h.repeat)
	}
	if op == "entered" && h.late {
		text += " late"
		h.late = false
	}
	if op == "entered" && !h.next.IsZero() && h.next.Before(now) { // it is as old as it was due
		text += fmt.Sprintf(" seen %s", h.next.Sub(start))
	}
	r.edges = append(r.edges, text)
}

func (r *reference) enter(now time.Time, name string, h *held) {
	if h.told {
		h.repeat++
	}
	r.tell(now, "entered", name, h)
	h.told, h.next = true, time.Time{}
	if r.cfg.Every > 0 {
		h.next = now.Add(r.cfg.Every)
	}
}

// until lets time go by.
func (r *reference) until(now, to time.Time) {
	for {
		var first string
		for name, h := range r.objects {
			if h.next.IsZero() || h.next.After(to) {
				continue
			}
			if first == "" || cmp.Or(h.next.Compare(r.objects[first].next), strings.Compare(name, first)) < 0 {
				first = name
			}
		}
		if first == "" {
			return
		}
		h := r.objects[first]
		if h.next.After(now) {
			now = h.next
		}
		r.enter(now, first, h)
	}
}

func (r *reference) see(now time.Time, op, name, uid string, version int) {
	op, not := strings.CutSuffix(op, "!")
	h := r.objects[name]
	if op != "deleted" && h != nil && h.uid != uid {
		if h.told {
			r.tell(now, "left", name, h)
		}
		delete(r.objects, name)
		h = nil
	}
	if op == "deleted" || not {
		if h != nil && h.told {
			if op != "deleted" {
				h.version = version
			}
			r.tell(now, "left", name, h)
		}
		delete(r.objects, name)
		return
	}
	if h == nil {
		h = &held{uid: uid, version: version, since: now, skipped: op == "existing" && r.cfg.Skip}
		r.objects[name] = h
		switch {
		case h.skipped:
		case r.cfg.For == 0:
			r.enter(now, name, h)
		default:
			h.next = now.Add(r.cfg.For)
		}
		return
	}
	h.version = version
	if op == "listed" && !h.told && !h.skipped {
		h.since, h.next, h.late = now, now.Add(r.cfg.For), false
	}
}

// restart at a time of the wall clock, which may have gone back.
func (r *reference) restart(now time.Time) {
	for _, h := range r.objects {
		if h.since.After(now) {
			h.since = now
		}
		switch {
		case h.next.IsZero():
			continue
		case !h.told:
			h.next = h.since.Add(r.cfg.For)
		case h.next.After(now.Add(r.cfg.Every)):
			h.next = now.Add(r.cfg.Every)
		}
		h.late = !h.next.After(now)
	}
}

// TestConditionsModel: whatever happens, in whatever order, with restarts in between and clocks that jump, exactly that is told which a
// simpler machine tells.
func TestConditionsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := rules.ConditionConfig{
			For:   time.Duration(rapid.SampledFrom([]int{0, 60, 90}).Draw(rt, "for")) * time.Second,
			Every: time.Duration(rapid.SampledFrom([]int{0, 45, 3600}).Draw(rt, "every")) * time.Second,
			Skip:  rapid.Bool().Draw(rt, "skip"),
		}
		b := newBench(t, cfg)
		cfg.Sources = []string{"pods"}
		r := &reference{cfg: cfg, objects: map[string]*held{}}
		uids := map[string]int{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now := b.clock.Now()
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "object")
			switch step := rapid.SampledFrom([]string{"see", "see", "see", "time", "restart"}).Draw(rt, "step"); step {
			case "see":
				op := rapid.SampledFrom([]string{"updated", "updated!", "listed", "listed!", "deleted", "sync", "sync!", "recreated"}).Draw(rt, "op")
				switch {
				case b.last[name] == nil:
					op = rapid.SampledFrom([]string{"added", "added!", "existing", "existing!"}).Draw(rt, "new")
					uids[name]++
				case op == "recreated":
					op = "added"
					uids[name]++
				}
				b.see(op, name, fmt.Sprint(uids[name]))
				version := b.number
				if strings.HasPrefix(op, "sync") {
					version, _ = strconv.Atoi(b.last[name].ResourceVersion())
				}
				r.see(now, op, name, fmt.Sprint(uids[name]), version)
			case "time":
				to := now.Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "seconds")) * time.Second)
				b.clock.Advance(to)
				r.until(now, to)
			case "restart":
				b.save()
				to := now.Add(time.Duration(rapid.SampledFrom([]int{-86400, -30, 0, 30, 120, 86400}).Draw(rt, "jump")) * time.Second)
				b.restart(cfg, to)
				r.restart(to)
			}
			slices.Sort(b.edges)
			slices.Sort(r.edges)
			if !slices.Equal(b.edges, r.edges) {
				rt.Fatalf("told\n\t%s\nwant\n\t%s", strings.Join(b.edges, "\n\t"), strings.Join(r.edges, "\n\t"))
			}
		}
		b.save()
		if len(b.saved) != len(r.objects) {
			rt.Fatalf("%d are saved, and %d hold", len(b.saved), len(r.objects))
		}
	})
}
