package pipeline_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/pipeline/spec"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// limitCase is the limit of a route, and the name of an equal route without limit; empty: there is
// none, because a report of a timer at the moment of a change may precede it in one route and
// follow it in the other.
type limitCase struct {
	twin  string
	by    func(name string) string
	every time.Duration
	burst int
}

func lastLetter(name string) string { return name[len(name)-1:] }
func all(string) string             { return "all" }

// limitCases are the tested limits. None of their routes has reminders, because these may be
// repeated or replaced after a crash.
var limitCases = map[string]limitCase{
	"now limited":     {twin: "now", by: lastLetter, every: 90 * time.Second, burst: 1},
	"now limited all": {twin: "now", by: all, every: 40 * time.Second, burst: 2},
	"for limited":     {by: all, every: 100 * time.Second, burst: 1},
}

// keyTimes are the times at which the limit keys of objects were evaluated, and so the times of
// their use in the limit: by uid/version. They are measured with a clock that shows the greatest
// possible refill of the limit: it follows the wall clock, even while the router is down, and stops
// where that goes back.
type keyTimes struct {
	mu sync.Mutex
	at map[string]time.Duration
}

func (w *conditionModel) limit(name string) spec.Limit {
	l, ok := limitCases[name]
	if !ok {
		return spec.Limit{}
	}
	if w.keyTimes[name] == nil {
		w.keyTimes[name] = &keyTimes{at: map[string]time.Duration{}}
	}
	a := w.keyTimes[name]
	return spec.Limit{Every: l.every, Burst: l.burst, Key: func(_ context.Context, d *event.Delta) (string, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if d.Began == "" && d.New != nil { // neither a restored condition nor an end
			a.at[d.Object().UID()+"/"+d.Object().ResourceVersion()] = w.refilled()
		}
		return l.by(d.Key().Name), nil
	}}
}

// refilled returns the time of keyTimes.
func (w *conditionModel) refilled() time.Duration {
	w.livesMu.Lock()
	defer w.livesMu.Unlock()
	var sum time.Duration
	for i, life := range w.lives {
		if i > 0 {
			sum += max(0, life.wall(life.from).Sub(w.lives[i-1].wall(w.lives[i-1].to)))
		}
		to := life.to
		if to.IsZero() {
			to = time.Now()
		}
		sum += to.Sub(life.from)
	}
	return sum
}

// checkLimit checks that for each key no more than the limit allows was reported, and that the
// suppressed counts contain the rest. Left is reported exactly for reported keys, and in the end
// exactly the conditions that hold are reported.
func (w *conditionModel) checkLimit(name string) {
	l := limitCases[name]
	w.checkKeys(name)
	each := func(name string, f func(e reportedEdge)) {
		known := map[string]bool{}
		for _, e := range w.receivers[name].all {
			if !known[e.ID] {
				known[e.ID] = true
				f(e)
			}
		}
	}
	came := map[string][]time.Duration{}
	wanted, got, suppressed := map[string]int{}, map[string]int{}, map[string]int{}
	each(name, func(e reportedEdge) {
		key := l.by(e.d.Key().Name)
		suppressed[key] += e.d.Suppressed
		if e.d.Op == event.Entered {
			came[key] = append(came[key], e.keyTime)
			got[key]++
		}
	})
	for _, key := range slices.Sorted(maps.Keys(came)) {
		at := came[key]
		slices.Sort(at)
		for j := range at {
			for i := range j {
				if n, most := j-i+1, l.burst+int((at[j]-at[i])/l.every); n > most {
					w.failf("%s: %d of %s were reported from %v to %v, want %d at most", name, n, key, at[i], at[j], most)
				}
			}
		}
	}
	if l.twin == "" {
		return
	}
	each(l.twin, func(e reportedEdge) {
		if e.d.Op == event.Entered {
			wanted[l.by(e.d.Key().Name)]++
		}
	})
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		// a condition that waited for long is counted more than once
		if n := wanted[key]; got[key]+suppressed[key] < n {
			w.failf("%s: of %s %d were reported and %d suppressed, want %d together", name, key, got[key], suppressed[key], n)
		}
	}
}

// checkKeys checks the reports of each key, which came in order.
func (w *conditionModel) checkKeys(name string) {
	// by key: the objects since the key was reported
	l, known, reported := limitCases[name], map[string]bool{}, map[string]map[string]bool{}
	for _, e := range w.receivers[name].all {
		if known[e.ID] {
			continue // repeated after a crash
		}
		known[e.ID] = true
		switch key := l.by(e.d.Key().Name); {
		case e.d.Op == event.Left && reported[key] == nil:
			w.failf("%s: that %s is over was reported, when %s was not", name, e.d.Object().UID(), key)
		case e.d.Op == event.Left:
			delete(reported, key)
		default:
			if reported[key] == nil {
				reported[key] = map[string]bool{}
			}
			reported[key][e.d.Object().UID()] = true
		}
	}
	on := map[string]bool{}
	for _, o := range w.now {
		if !isOn(o) {
			continue
		}
		key := l.by(o.Key().Name)
		if on[key] = true; !reported[key][o.UID()] {
			w.failf("%s: in the end %s is on, and that was not reported", name, o.UID())
		}
	}
	for key := range reported {
		if !on[key] {
			w.failf("%s: the end of %s was not reported", name, key)
		}
	}
}

// lifetime is the time in which the router ran, and the skew of its wall clock.
type lifetime struct {
	from, to time.Time // to is zero: it is still running
	skew     time.Duration
}

func (l lifetime) wall(at time.Time) time.Time { return at.Add(l.skew) }

// early reports whether a condition that began at a time cannot have held for length at another, by
// the wall clocks of the lives between. If a clock has gone back, the condition counts from the
// start of that life at the latest.
func (w *conditionModel) early(began, at time.Time, length time.Duration) bool {
	var since time.Time
	for _, life := range w.lives {
		switch {
		case !life.to.IsZero() && life.to.Before(began):
			continue
		case life.from.After(at):
			return true
		case since.IsZero():
			since = life.wall(began)
		case life.wall(life.from).Before(since):
			since = life.wall(life.from)
		}
		to := at
		if !life.to.IsZero() && life.to.Before(at) {
			to = life.to
		}
		if life.wall(to).Sub(since) >= length {
			return false
		}
	}
	return true
}

// skewedClock is a clock with a skew.
type skewedClock struct {
	timer.Clock

	by time.Duration
}

// Now implements timer.Clock.
func (c skewedClock) Now() time.Time { return c.Clock.Now().Add(c.by) }

// NewTimer implements timer.Clock.
func (c skewedClock) NewTimer(f func()) timer.Timer { return skewedTimer{c.Clock.NewTimer(f), c.by} }

type skewedTimer struct {
	timer.Timer

	by time.Duration
}

// Set implements timer.Timer.
func (t skewedTimer) Set(at time.Time) { t.Timer.Set(at.Add(-t.by)) }
