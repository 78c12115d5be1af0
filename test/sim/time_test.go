package sim_test

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

const everything = "ops: [added, updated, deleted, deselected]"

// Rules about time, whose conditions hold for web objects.
const (
	whenWeb    = `when: 'object.metadata.labels.app == "web"'`
	heldWeb    = whenWeb + ", for: 1s"
	remindsWeb = heldWeb + ", every: 20s"
	limitedWeb = whenWeb + ", limit: {key: object.metadata.name, every: 5s}"
	limitedAll = whenWeb + ", limit: {key: '\"all\"', every: 5s}" // one key for all objects
	goneLong   = "ops: [deleted], for: 1s"
	// A new object with the same label cancels the delete hold.
	goneKey = goneLong + ", key: object.metadata.labels.app"
)

// The ways in which a route collects deltas.
const (
	quietly = "quietly" // debounce: until an object is quiet
	grouped = "grouped" // batch.by: with other objects of the same label
)

const (
	held = time.Second     // for
	rare = 5 * time.Second // every of the limit

	quietFor, quietMost = 270 * time.Millisecond, 2 * time.Second // of debounce
	gathered            = 400 * time.Millisecond                  // of batch.by
	oldest              = 3 * time.Second                         // maxAge
)

func drawTimed(t *rapid.T) *route {
	return &route{
		names: []string{"timed"}, since: unknown, from: "scope", existing: true, overflow: "coalesce", attempts: 1, onFailure: "deadLetter",
		time:   rapid.SampledFrom([]string{whenWeb, heldWeb, remindsWeb, limitedWeb, limitedAll, goneLong, goneKey}).Draw(t, "time"),
		sinks:  rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "sinks"),
		memory: rapid.SampledFrom([]int{1000, 1000, 2}).Draw(t, "memory"), disk: rapid.SampledFrom([]string{"0", "1Gi"}).Draw(t, "disk"),
		batch: rapid.SampledFrom([]int{1, 64}).Draw(t, "batch"), concurrency: rapid.IntRange(1, 3).Draw(t, "concurrency"),
		behind: drawBehind(t),
	}
}

// drawWaits adds a debounce, a batch.by or a maxAge to a route.
func drawWaits(t *rapid.T, r *route) {
	if r.overflow == "block" {
		r.overflow = "coalesce" // a blocked source may see changes very late
	}
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		r.gathers = quietly
	case 1:
		r.gathers, r.handler = grouped, "h"
	case 2:
		r.gathers, r.handler, r.batch = grouped, "joint", max(r.batch, 2)
		if r.overflow == "dropOldest" && r.batch >= r.memory {
			r.overflow = "coalesce" // otherwise the configuration may be refused
		}
	}
	r.maxAge = r.gathers == "" || rapid.IntRange(0, 3).Draw(t, "maxAge") == 3
}

// checkTimes checks that no delivery was too early or too late.
func (v *view) checkTimes() {
	for _, d := range v.w.r.log {
		if d.sink != v.sink || !slices.Contains(v.r.names, d.route) || d.flagged {
			continue
		}
		if v.r.maxAge && d.begun.Sub(d.seen) > oldest {
			v.fail("%s came %v after it was seen", d, d.begun.Sub(d.seen))
		}
		begin := v.w.past[d.life-1].began
		// A smaller group may have been complete, if further deltas of it wait for their first
		// save. A coalesced delta has the time of its last part.
		if d.group > 0 && v.r.batch >= 64 && v.r.memory >= 100 && !v.r.nets() && d.at.Before(d.first.Add(gathered)) && d.first.After(begin) {
			v.fail("%s came in a group of %d, %v after the first of it", d, d.group, d.at.Sub(d.first))
		}
		// A delta that waits for a worker or for the disk does not start a new window.
		if v.r.gathers == quietly && !v.w.r.ever && !v.w.disk.ever && d.at.Before(d.seen.Add(quietFor)) && !v.busySince(d) && !v.goesAlong(d) {
			v.fail("%s came %v after it was seen", d, d.at.Sub(d.seen))
		}
	}
}

// goesAlong reports whether a delivery may contain a delta that came when its object had been quiet
// for long enough and was about to be taken.
func (v *view) goesAlong(d delivery) bool {
	return d.at.Sub(d.seen) <= time.Duration(v.r.wait)*time.Millisecond &&
		slices.ContainsFunc(v.w.c.past[d.name], func(m moment) bool { return !m.when.After(d.seen.Add(-quietFor)) })
}

// busySince reports whether an object has changed for so long that the maximum wait was over.
func (v *view) busySince(d delivery) bool {
	return slices.ContainsFunc(v.w.c.past[d.name], func(m moment) bool { return !m.when.After(d.at.Add(-quietMost)) })
}

// limited reports whether the route has a condition and a limit.
func (r *route) limited() bool { return r.time == limitedWeb || r.time == limitedAll }

// gone reports whether the route has a delete hold.
func (r *route) gone() bool { return r.time == goneLong || r.time == goneKey }

// timedView has the deliveries of the route with a rule about time to a sink.
type timedView struct {
	view

	// uids of rejected deliveries, for which further failures would confuse
	refused map[int]bool
	all     []delivery            // in order of arrival, without repetitions
	byUID   map[int][]delivery    // the same by uid
	byName  map[string][]delivery // the same by name
}

func newTimedView(w *world, sink string) *timedView {
	return &timedView{view: view{w: w, r: w.timed, sink: sink}, refused: map[int]bool{}, byUID: map[int][]delivery{}, byName: map[string][]delivery{}}
}

// checkTimed checks that entered and left alternate; that no report is early, exceeds a limit, or
// is repeated after it was saved as delivered; and that the last reports agree with the cluster.
func (w *world) checkTimed() {
	for _, sink := range w.timed.sinks {
		v := newTimedView(w, sink)
		v.take()
		for _, uid := range slices.Sorted(maps.Keys(v.byUID)) {
			// otherwise resourceVersions, and so ids, are ambiguous
			if !v.refused[uid] && !w.c.rewound && w.timed.time != limitedAll {
				v.checkAlternates(uid)
				v.checkEarly(v.byUID[uid])
			}
		}
		if w.timed.limited() && !w.c.rewound {
			v.checkLimit()
		}
		if w.timed.time == limitedAll {
			v.checkKey()
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(w.c.past)) {
			v.checkEnd(name, w.c.past[name])
		}
	}
}

func (v *timedView) take() {
	for r := range v.w.r.rejected {
		v.refused[r.uid] = v.refused[r.uid] || slices.Contains(v.r.names, r.route) && r.sink == v.sink
	}
	first := map[string]delivery{}
	for _, d := range v.w.r.log {
		if d.sink != v.sink || d.route != v.r.name() || d.flagged {
			continue
		}
		before, again := first[d.id]
		if again && !v.w.c.rewound {
			if !before.doubtful && (before.life == d.life || before.at.Before(v.w.past[before.life-1].saved)) {
				v.fail("%s came, and comes again as %s", before, d)
			}
			if before.doubtful {
				first[d.id] = d
			}
			continue
		}
		first[d.id] = d
		v.all = append(v.all, d)
		v.byUID[d.uid], v.byName[d.name] = append(v.byUID[d.uid], d), append(v.byName[d.name], d)
	}
}

func (v *timedView) checkAlternates(uid int) {
	told := false
	for i, d := range v.byUID[uid] {
		switch {
		case d.op == "deleted" && v.r.gone() && i == 0:
		case d.op == "entered" && d.repeat == told:
			told = true
		case d.op == "left" && told:
			told = false
		default:
			v.fail("%s, when that it holds was told: %v; all: %v", d, told, v.byUID[uid])
			return
		}
	}
}

// checkEarly checks that each reported condition had held for long enough.
func (v *timedView) checkEarly(all []delivery) {
	for _, d := range all {
		past := v.w.c.past[d.name]
		at := slices.IndexFunc(past, func(m moment) bool { return m.uid == d.uid && (d.op == "deleted" && m.gone || !m.gone && m.n == d.n) })
		if at < 0 || d.op == "left" || d.repeat || v.r.time == whenWeb || v.r.limited() {
			continue
		}
		for d.op == "entered" && at > 0 && past[at-1].uid == d.uid && past[at-1].web && !past[at-1].gone {
			at--
		}
		if began := past[at].when; d.seen.Before(began.Add(held)) {
			v.fail("%s was due at %v, and began at %v", d, d.seen, began)
		}
	}
}

// checkLimit checks the limit. If no route blocked the watch, deltas were counted when they were
// seen.
func (v *timedView) checkLimit() {
	if slices.ContainsFunc(v.w.routes, func(r *route) bool { return r.overflow == "block" }) {
		return
	}
	last := map[string]delivery{}
	// In the order in which they were seen: a rejected delivery whose dead letter a crash lost is
	// repeated in the next life, after later deliveries.
	bySeen := func(a, b delivery) int { return a.seen.Compare(b.seen) }
	for _, d := range slices.SortedStableFunc(slices.Values(v.all), bySeen) {
		key := d.name
		if v.r.time == limitedAll {
			key = ""
		}
		if d.op != "entered" {
			continue
		}
		if before, ok := last[key]; ok && d.seen.Sub(before.seen) < rare {
			v.fail("%s was seen %v after %s", d, d.seen.Sub(before.seen), before)
		}
		last[key] = d
	}
}

// checkKey checks a key of all objects: left follows entered, and only when the condition holds for
// none of them; at the end all objects for which it holds were reported.
func (v *timedView) checkKey() {
	if v.w.c.rewound || slices.Contains(slices.Collect(maps.Values(v.refused)), true) {
		return
	}
	var told map[int]bool // uids since the key was reported
	for _, d := range v.all {
		switch {
		case d.op == "left" && told == nil:
			v.fail("%s, when nothing was told to hold: %v", d, v.all)
			return
		case d.op == "left":
			told = nil
		case told == nil:
			told = map[int]bool{d.uid: true}
		default:
			told[d.uid] = true
		}
	}
	holds := false
	for name, past := range v.w.c.past {
		final := past[len(past)-1]
		if !v.w.holds(name, final) {
			continue
		}
		if holds = true; !told[final.uid] {
			v.fail("%s: uid %d holds, and that is not told: %v; past %s", name, final.uid, v.all, show(past))
		}
	}
	if !holds && told != nil {
		v.fail("it holds for none, and that is not told: %v", v.all)
	}
}

// checkEnd checks that the last report of each object agrees with the cluster.
func (v *timedView) checkEnd(name string, past []moment) {
	final := past[len(past)-1]
	for i, m := range past {
		told := ""
		for _, d := range v.byUID[m.uid] {
			told = d.op
		}
		holds := m == final && v.w.holds(name, m)
		switch {
		case v.refused[m.uid] || slices.ContainsFunc(past[i+1:], func(later moment) bool { return later.uid == m.uid }):
		case v.r.time == goneKey:
		case v.r.time == goneLong:
			// otherwise it may have existed for too short a time to be seen
			if m == final && m.gone && m.at > v.r.since && told == "" && v.exact() && !v.w.c.rewound {
				v.fail("uid %d is gone, since %d, and that is not told; past %s", m.uid, v.r.since, show(past))
			}
		case told == "entered" != holds:
			v.fail("uid %d: it holds: %v, told last %q: %v; past %s", m.uid, holds, told, v.byUID[m.uid], show(past))
		}
	}
	if v.r.time == whenWeb && v.exact() && !v.w.c.rewound {
		v.checkEachTime(past)
	}
}

// checkEachTime checks that each begin of the condition was reported, if there was no list after
// the first one.
func (v *timedView) checkEachTime(past []moment) {
	for i, m := range past {
		if !m.web || m.gone || m.at <= v.r.since || v.refused[m.uid] || i > 0 && past[i-1].uid == m.uid && past[i-1].web {
			continue
		}
		if !slices.ContainsFunc(v.byUID[m.uid], func(d delivery) bool { return d.op == "entered" && d.n == m.n }) {
			v.fail("that %d/%d holds is not told, since %d: %v; past %s", m.uid, m.n, v.r.since, v.byUID[m.uid], show(past))
		}
	}
}
