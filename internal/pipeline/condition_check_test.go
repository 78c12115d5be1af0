package pipeline_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/transit"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// note records an event of the run, to explain a failure that cannot be reproduced.
func (w *conditionModel) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%v "+format, append([]any{time.Since(w.born)}, args...)...))
}

// report returns the record, and the reports of the routes that failed.
func (w *conditionModel) report() string {
	var b strings.Builder
	b.WriteString(strings.Join(w.history, "\n"))
	for _, name := range slices.Sorted(maps.Keys(w.receivers)) {
		if !strings.Contains(w.wrong.Error(), name+": ") {
			continue
		}
		fmt.Fprintf(&b, "\n%s (%+v), refilled at %v:", name, limitCases[name], w.refilled())
		for _, e := range w.receivers[name].all {
			fmt.Fprintf(&b, "\n\t%v %s, since %v", e.at.Sub(w.born), show(e.d), e.d.Since.Sub(w.born))
			if _, limited := limitCases[name]; limited {
				fmt.Fprintf(&b, ", the key was evaluated at %v, suppressed %d", e.keyTime, e.d.Suppressed)
			}
		}
	}
	return b.String()
}

// show formats a delta of an object.
func show(d *event.Delta) string {
	text := fmt.Sprintf("%s %s %s", d.Op, d.Object().UID(), d.Began)
	for i, o := range []*event.Object{d.Old, d.New} {
		if o != nil {
			text += fmt.Sprintf(" %s %s", []string{"old", "new"}[i], o.ResourceVersion())
			if isOn(o) {
				text += " on"
			}
		}
	}
	if transit.Of(d).Listed {
		text += " listed"
	}
	if d.Late {
		text += " late"
	}
	if d.Repeat > 0 {
		text += fmt.Sprint(" repeat ", d.Repeat)
	}
	return text
}

// check checks the reports.
func (w *conditionModel) check() {
	for _, name := range slices.Sorted(maps.Keys(w.receivers)) {
		l, when := w.receivers[name], conditionRoutes[name]
		known, holds, entered := map[string]bool{}, map[string]bool{}, map[string]time.Time{}
		for _, e := range l.all {
			d := e.d
			began, ok := w.began[d.Object().UID()+"/"+d.Began]
			if d.Op == event.Entered && (!ok || w.early(began, e.at, when.For)) {
				w.failf("%s: %s of %s at %v, which began at %v (%v)", name, d.Op, d.Began, e.at, began, ok)
			}
		}
		if _, limited := limitCases[name]; limited {
			w.checkLimit(name)
			continue
		}
		for _, e := range l.all {
			d := e.d
			if known[e.ID] {
				continue // repeated after a crash
			}
			known[e.ID] = true
			uid := d.Object().UID()
			if d.Repeat == 0 && holds[uid] == (d.Op == event.Entered) || d.Repeat > 0 && !holds[uid] {
				w.failf("%s: %s %s of %s (%d) when it is reported: %v", name, d.Op, uid, d.Began, d.Repeat, holds[uid])
			}
			holds[uid] = d.Op == event.Entered
			if d.Op == event.Entered && d.Repeat == 0 {
				entered[uid+"/"+d.Began] = e.at
			}
		}
		for _, object := range slices.Sorted(maps.Keys(w.now)) {
			o := w.now[object]
			if isOn(o) != holds[o.UID()] {
				w.failf("%s: in the end %s is on: %v, reported: %v", name, o.UID(), isOn(o), holds[o.UID()])
			}
			delete(holds, o.UID())
		}
		for _, uid := range slices.Sorted(maps.Keys(holds)) {
			if holds[uid] {
				w.failf("%s: the end of %s was not reported", name, uid)
			}
		}
		for _, i := range w.on {
			if name == "now fold" || i.disturbed || !w.quiet(i, when.For) {
				continue
			}
			if _, ok := entered[i.uid+"/"+i.version]; !ok {
				w.failf("%s: that %s of %s was on from %v to %v was not reported", name, i.uid, i.version, i.from, i.to)
			}
		}
	}
}

// quiet reports whether an object was on for longer than length, while the router ran all the time,
// until its report was on disk.
func (w *conditionModel) quiet(i interval, length time.Duration) bool {
	due := i.from.Add(length)
	saved := slices.IndexFunc(w.cuts, func(c time.Time) bool { return c.After(due) })
	if saved < 0 || !i.to.IsZero() && !i.to.After(due) {
		return false
	}
	return !slices.ContainsFunc(w.interruptions, func(b time.Time) bool { return !b.Before(i.from) && !b.After(w.cuts[saved]) })
}
