package sim_test

import (
	"slices"
	"time"
)

// The selector of the source of the route with a rule about time, in its two scopes: all objects,
// or all but the far ones.
const (
	wide   = ""
	narrow = ", labelSelector: scope!=far"
)

// far reports whether the narrow scope leaves an object out.
func far(name string) bool { return name == "a" || name == "c" }

// scope returns the present scope.
func (w *world) scope() string {
	if w.narrowed {
		return narrow
	}
	return wide
}

// watches is the number of watches.
func (w *world) watches() int {
	if w.narrowed {
		return 3
	}
	return 2
}

// holds reports whether the condition holds for a moment of a name that the scope has.
func (w *world) holds(name string, m moment) bool {
	return m.web && !m.gone && (!w.narrowed || !far(name))
}

// turnScope narrows the configuration, or widens it again, when all due reports were delivered and
// saved: by a reload, by a reload and a crash, or at a start. Each reported object that is taken
// away gets one left, each one that is given back and holds is reported again, and nothing else is.
func (w *world) turnScope(a, b int) {
	if w.timed == nil || w.timed.gone() { // a delete hold reports nothing about an object that it does not see
		return
	}
	w.settle()
	w.pass(6 * time.Second) // until a cut
	if w.l == nil || w.listed < 0 || len(w.failed) > 0 {
		return
	}
	before := w.reports()
	how := a % 3
	if how == 2 {
		w.stopOrCrash(b%2 == 0)
	}
	w.narrowed = !w.narrowed
	w.say("narrowed: %v", w.narrowed)
	if how < 2 {
		w.signal()
	}
	if how == 1 {
		w.crash()
	}
	w.settle()
	w.checkTurn(before)
}

// stopOrCrash ends the process.
func (w *world) stopOrCrash(crash bool) {
	if crash {
		w.crash()
	} else {
		w.stop()
	}
}

// reports returns the deliveries of the route with a rule about time, without repetitions and
// reminders, to each of its sinks.
func (w *world) reports() []*timedView {
	var all []*timedView
	for _, sink := range w.timed.sinks {
		v := newTimedView(w, sink)
		v.take()
		for uid, told := range v.byUID {
			v.byUID[uid] = slices.DeleteFunc(told, func(d delivery) bool { return d.repeat })
		}
		all = append(all, v)
	}
	return all
}

// checkTurn compares the reports since the scope was turned with the far objects.
func (w *world) checkTurn(before []*timedView) {
	if w.c.rewound || w.timed.time == limitedAll || len(w.failed) > 0 {
		return
	}
	for i, v := range w.reports() {
		for name, o := range w.c.objects {
			all := v.byUID[o.uid]
			told := all[min(len(all), len(before[i].byUID[o.uid])):]
			want := []string{}
			switch {
			case v.refused[o.uid]:
				continue
			case o.web && far(name) && w.narrowed:
				want = []string{"left"}
			case o.web && far(name):
				want = []string{"entered"}
			}
			if !slices.EqualFunc(told, want, func(d delivery, op string) bool { return d.op == op }) {
				v.fail("narrowed: %v, and about %s %v is told, want %v", w.narrowed, name, told, want)
			}
		}
	}
}
