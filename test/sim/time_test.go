package sim_test

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

const everything = "ops: [added, updated, deleted, deselected]"

// The rules about time: object web is what their conditions ask for.
const (
	whenWeb    = `when: 'object.metadata.labels.app == "web"'`
	heldWeb    = whenWeb + ", for: 1s"
	remindsWeb = heldWeb + ", every: 20s"
	limitedWeb = whenWeb + ", limit: {key: object.metadata.name, every: 5s}"
	limitedAll = whenWeb + ", limit: {key: '\"all\"', every: 5s}" // one key for all objects
	goneLong   = "ops: [deleted], for: 1s"
	// what has that label and comes back cancels it
	goneKey = goneLong + ", key: object.metadata.labels.app"
)

// How a route waits for more.
const (
	quietly = "quietly" // until an object is quiet
	grouped = "grouped" // for other objects of the same label
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
		names: []string{"timed"}, since: unknown, from: "pods", existing: true, overflow: "coalesce", attempts: 1, onFailure: "deadLetter",
		time:   rapid.SampledFrom([]string{whenWeb, heldWeb, remindsWeb, limitedWeb, limitedAll, goneLong, goneKey}).Draw(t, "time"),
		sinks:  rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "sinks"),
		memory: rapid.SampledFrom([]int{1000, 1000, 2}).Draw(t, "memory"), disk: rapid.SampledFrom([]string{"0", "1Gi"}).Draw(t, "disk"),
		batch: rapid.SampledFrom([]int{1, 64}).Draw(t, "batch"), concurrency: rapid.IntRange(1, 3).Draw(t, "concurrency"),
	}
}

// drawWaits makes a route wait for more, or not for too long.
func drawWaits(t *rapid.T, r *route) {
	if r.overflow == "block" {
		r.overflow = "coalesce" // else a source that waits may not have seen for long what happened
	}
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		r.gathers = quietly
	case 1:
		r.gathers, r.handler = grouped, "h"
	case 2:
		r.gathers, r.handler, r.batch = grouped, "joint", max(r.batch, 2)
		if r.overflow == "dropOldest" && r.batch >= r.memory {
			r.overflow = "coalesce" // else the configuration may be refused
		}
	}
	r.maxAge = r.gathers == "" || rapid.IntRange(0, 3).Draw(t, "maxAge") == 3
}

// checkTimes: nothing came before what it waits for was over, or too late.
func (v *view) checkTimes() {
	for _, d := range v.w.r.log {
		if d.sink != v.sink || !slices.Contains(v.r.names, d.route) || d.flagged {
			continue
		}
		if v.r.maxAge && d.begun.Sub(d.seen) > oldest {
			v.fail("%s came %v after it was seen", d, d.begun.Sub(d.seen))
		}
		begin := v.w.past[d.life-1].began
		// A smaller one may have been complete with what is not to be told yet since it is new; and
		// what was folded was seen last.
		if d.group > 0 && v.r.batch >= 64 && v.r.memory >= 100 && !v.r.nets() && d.at.Before(d.first.Add(gathered)) && d.first.After(begin) {
			v.fail("%s came in a group of %d, %v after the first of it", d, d.group, d.at.Sub(d.first))
		}
		// What waits for a worker, or for the disk, does not begin anew.
		if v.r.gathers == quietly && !v.w.r.ever && !v.w.disk.ever && d.at.Before(d.seen.Add(quietFor)) && !v.busySince(d) && !v.goesAlong(d) {
			v.fail("%s came %v after it was seen", d, d.at.Sub(d.seen))
		}
	}
}

// goesAlong reports whether a delivery may be of what came when its object had just been quiet for
// long enough, and was about to be taken.
func (v *view) goesAlong(d delivery) bool {
	return d.at.Sub(d.seen) <= time.Duration(v.r.wait)*time.Millisecond &&
		slices.ContainsFunc(v.w.c.past[d.name], func(m moment) bool { return !m.when.After(d.seen.Add(-quietFor)) })
}

// busySince reports whether something has happened to the object of a delivery for so long that it
// was not waited for any longer.
func (v *view) busySince(d delivery) bool {
	return slices.ContainsFunc(v.w.c.past[d.name], func(m moment) bool { return !m.when.After(d.at.Add(-quietMost)) })
}

// limited reports whether the route has a condition and a limit.
func (r *route) limited() bool { return r.time == limitedWeb || r.time == limitedAll }

// gone reports whether the route tells of what is gone for long.
func (r *route) gone() bool { return r.time == goneLong || r.time == goneKey }

// timedView is what a sink took of the route with a rule about time.
type timedView struct {
	view

	// the uids of which a sink refused something for good, so that more would confuse
	refused map[int]bool
	all     []delivery            // as they came, but for those that came again
	byUID   map[int][]delivery    // likewise
	byName  map[string][]delivery // likewise
}

// checkTimed: entered and left alternate, nothing comes early, or more often than a limit says, or
// again although that it came was saved; and in the end what was told is what is.
func (w *world) checkTimed() {
	for _, sink := range w.timed.sinks {
		v := &timedView{view: view{w: w, r: w.timed, sink: sink}, refused: map[int]bool{}, byUID: map[int][]delivery{}, byName: map[string][]delivery{}}
		v.take()
		for _, uid := range slices.Sorted(maps.Keys(v.byUID)) {
			// else resourceVersions, and so ids, mean two things
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
			v.checkEnd(w.c.past[name])
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

// checkEarly: what is to hold for a while has held for that.
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

// checkLimit: where no other route held up the watch, what was seen was at once counted.
func (v *timedView) checkLimit() {
	if slices.ContainsFunc(v.w.routes, func(r *route) bool { return r.overflow == "block" }) {
		return
	}
	last := map[string]delivery{}
	// In the order in which they were seen: one that the sink rejected, and of which a crash forgot
	// that it is a dead letter, is delivered in the next life, behind what came after it.
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

// checkKey: of a key that stands for all objects, the end is told of what was told, and only when
// it holds for none of them; and in the end all that holds was told.
func (v *timedView) checkKey() {
	if v.w.c.rewound || slices.Contains(slices.Collect(maps.Values(v.refused)), true) {
		return
	}
	var told map[int]bool // the uids since it is reported
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
		if !final.web || final.gone {
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

// checkEnd: of each object, what was told last is what is.
func (v *timedView) checkEnd(past []moment) {
	final := past[len(past)-1]
	for i, m := range past {
		told := ""
		for _, d := range v.byUID[m.uid] {
			told = d.op
		}
		holds := m == final && m.web && !m.gone
		switch {
		case v.refused[m.uid] || slices.ContainsFunc(past[i+1:], func(later moment) bool { return later.uid == m.uid }):
		case v.r.time == goneKey:
		case v.r.time == goneLong:
			// else it may have come and gone unseen
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

// checkEachTime: where nothing was listed but at first, each time that it began to hold was told.
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
