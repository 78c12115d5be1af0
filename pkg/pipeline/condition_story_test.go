package pipeline_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// note writes down what happened, so that a failure that does not come again explains itself.
func (w *lampWorld) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%v "+format, append([]any{time.Since(w.born)}, args...)...))
}

// story is what happened, and what the routes were told that something is wrong with.
func (w *lampWorld) story() string {
	var b strings.Builder
	b.WriteString(strings.Join(w.history, "\n"))
	for _, name := range slices.Sorted(maps.Keys(w.listeners)) {
		if !strings.Contains(w.wrong.Error(), name+": ") {
			continue
		}
		fmt.Fprintf(&b, "\n%s (%+v), refilled at %v:", name, lampLimits[name], w.refilled())
		for _, e := range w.listeners[name].all {
			fmt.Fprintf(&b, "\n\t%v %s, since %v", e.at.Sub(w.born), show(e.d), e.d.Since.Sub(w.born))
			if _, limited := lampLimits[name]; limited {
				fmt.Fprintf(&b, ", the key was asked for at %v, suppressed %d", e.asked, e.d.Suppressed)
			}
		}
	}
	return b.String()
}

// show writes a delta of a lamp down.
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
	if d.Listed {
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
