package sim_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// behind is a route with a limit behind the route with a rule about time. The sink c and the
// handler chain, which only it and the route echo use, never fail.
type behind struct {
	key     string // of the limit, and of the groups
	gathers string // quietly, grouped, or empty
}

// The names of the two routes behind the route with a rule about time. The route echo has no limit:
// its deliveries show what its upstream route passes on.
const (
	echo     = "timed-echo"
	limiting = "timed-limit"
)

// The limit keys: each object by itself, or all objects together.
const (
	keyOwn = "object.metadata.name"
	keyAll = `"all"`
)

func drawBehind(t *rapid.T) *behind {
	if rapid.IntRange(0, 3).Draw(t, "behind") == 0 {
		return nil
	}
	return &behind{
		key:     rapid.SampledFrom([]string{keyOwn, keyAll}).Draw(t, "limitKey"),
		gathers: rapid.SampledFrom([]string{"", quietly, grouped}).Draw(t, "limitGathers"),
	}
}

// targets returns the targets of the upstream route beside its sinks.
func (b *behind) targets() string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf(", {route: %s}, {route: %s}", echo, limiting)
}

func (b *behind) yaml() string {
	if b == nil {
		return ""
	}
	waits := ""
	switch b.gathers {
	case quietly:
		waits = fmt.Sprintf(", debounce: {quiet: %s, max: %s}", quietFor, quietMost)
	case grouped:
		waits = fmt.Sprintf(", batch: {by: '%s', wait: %s}", b.key, gathered)
	}
	return fmt.Sprintf("  - {name: %s, handler: chain, to: c}\n  - {name: %s, handler: chain, to: c, limit: {key: '%s', every: %s}%s}\n",
		echo, limiting, b.key, rare, waits)
}

// longest is the longest time for which the route waits until it asks its limit.
func (b *behind) longest() time.Duration {
	switch b.gathers {
	case quietly:
		return quietMost
	case grouped:
		return gathered
	}
	return 0
}

// passed is an event that the upstream route passed on. The limit was asked between seen and at, or
// after a wait.
type passed struct {
	delivery

	through bool // the limit let it through
	own     int  // the number of suppressed events that it counts
}

// is identifies an event in both routes: each has IDs of its own.
func (s delivery) is() string { return fmt.Sprint(s.uid, s.op, s.n, s.seen.UnixNano(), s.repeat) }

// checkBehind compares the events that the limit let through with those of the upstream route.
func (w *world) checkBehind() {
	if w.timed == nil || w.timed.behind == nil || w.c.rewound {
		return
	}
	through, came := map[string]delivery{}, map[string]bool{}
	for _, d := range w.r.log {
		if d.route == limiting {
			through[d.is()] = d
		}
	}
	byKey := map[string][]passed{}
	for _, d := range w.r.log {
		if d.route != echo || came[d.is()] {
			continue
		}
		came[d.is()] = true
		p, key := passed{delivery: d}, d.name
		if w.timed.behind.key == keyAll {
			key = ""
		}
		if t, ok := through[d.is()]; ok {
			p.through, p.own = true, t.held-d.held
		}
		byKey[key] = append(byKey[key], p)
	}
	for is, d := range through {
		// A crash may have come between the two deliveries, after which the event was not due any
		// more.
		if !came[is] && !w.lost(d) {
			w.fail("route %s delivered %s, which its upstream route did not pass on", limiting, d)
		}
	}
	for _, all := range byKey {
		w.checkTooMany(all)
		w.checkTooFew(all, through)
		w.checkReplay(all)
	}
}

// checkTooMany checks that no two deliveries of a key are closer than the limit allows.
func (w *world) checkTooMany(all []passed) {
	let := map[string]bool{}
	for i := range all {
		let[all[i].is()] = all[i].through
	}
	var last *delivery
	for i := range w.r.log {
		d := &w.r.log[i]
		if d.route != limiting || !let[d.is()] {
			continue
		}
		before := last
		last = d
		switch together := w.timed.behind.gathers == grouped; {
		case before == nil || before.is() == d.is() || w.lost(*before) && before.life != d.life:
		// One pass is for the whole group, which a stop may divide.
		case together && (d.begun.Equal(before.begun) || d.life != before.life):
		case d.at.Sub(before.seen) < rare:
			w.fail("the limit behind let %s through, %v after %s was seen", d, d.at.Sub(before.seen), before)
		}
	}
}

// lost reports whether a crash may have lost that an event was delivered.
func (w *world) lost(d delivery) bool { return !d.at.Before(w.past[d.life-1].saved) }

// checkTooFew checks that each event that the limit held back came too soon after one that it let
// through.
func (w *world) checkTooFew(all []passed, through map[string]delivery) {
	for i := range all {
		held := &all[i]
		if held.through || w.disk.ever || w.past[held.life-1].dead.Load() {
			continue
		}
		excused := false
		for j := range all {
			pass := &all[j]
			latest := held.at.Add(w.timed.behind.longest() + time.Second)
			excused = excused || pass.through && !pass.seen.After(latest) && held.seen.Before(through[pass.is()].at.Add(rare))
		}
		if !excused {
			w.fail("the limit behind held %s back without a reason: %v", held, all)
		}
	}
}

// checkReplay decides about each event again, in a run without crashes and waits, and compares the
// decisions and the counts. It ends at an event about which the times do not decide.
func (w *world) checkReplay(all []passed) {
	for _, l := range w.past {
		if l.dead.Load() {
			return
		}
	}
	if w.timed.behind.gathers != "" || w.disk.ever {
		return
	}
	var last *passed
	suppressed := 0
	for i := range all {
		p := &all[i]
		if w.timed.behind.key == keyAll && i+1 < len(all) && !all[i+1].seen.After(p.at) {
			return // objects have no order, so the limit may have been asked about the next one first
		}
		must := last == nil || !p.seen.Before(last.at.Add(rare))
		switch mustNot := last != nil && p.at.Before(last.seen.Add(rare)); {
		case must && !p.through, mustNot && p.through:
			w.fail("the limit behind let %s through: %v, want %v: %v", p, p.through, must, all)
			return
		case must && p.own != suppressed:
			w.fail("the limit behind counted %d before %s, want %d: %v", p.own, p, suppressed, all)
			return
		case must:
			last, suppressed = p, 0
		case mustNot:
			suppressed++
		default:
			return
		}
	}
}

// String renders an event and the decision of the limit for failures.
func (p passed) String() string {
	return strings.TrimSuffix(p.delivery.String(), "]") + fmt.Sprintf(", through %v, counts %d, seen %s]", p.through, p.own, p.seen.Format("04:05.000"))
}
