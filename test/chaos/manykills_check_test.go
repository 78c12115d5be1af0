package chaos

import (
	"fmt"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

var ledgerNames = []string{"all", "every", "narrow"} //nolint:gochecknoglobals // a constant

// end stops the history, waits in the last life until everything is delivered, and compares.
func (l *lives) end(t *testing.T, stop func(), objects, kills int) {
	t.Helper()
	stop()
	last := l.start(t)
	l.arrived(t, len(l.ended), last)
	l.ended = append(l.ended, life{router: last})
	if code := last.Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, route := range ledgerNames {
		l.compare(t, route)
	}
	if n := routertest.Lists(t, l.s, "configmaps", l.ns); n != 1 {
		t.Errorf("%d lists, want only that of the first start", n)
	}
	l.quiet(t)
	if l.history.groups == 0 {
		t.Error("no changes had one resourceVersion")
	}
	t.Logf("%d changes of %d objects, %d groups, %d uids, %d kills, %d cuts, %d barren streams",
		l.history.count(), objects, l.history.groups, len(l.history.versions), kills, l.proxy.Cuts(), l.proxy.Dried())
}

// delivered returns what one life delivered to a route.
func (l *lives) delivered(route string, n int) []routertest.Event {
	if route == "all" {
		return l.ended[n].router.Events()
	}
	return l.hook.life(hookPath(route, n))
}

// tally has the deliveries to a route up to some life.
type tally struct {
	seen map[mark]bool
	last map[string]int // newest version by uid
	sure map[mark]bool  // must not be repeated
}

// compare checks the deliveries of all lives.
func (l *lives) compare(t *testing.T, route string) {
	t.Helper()
	all := tally{make(map[mark]bool), make(map[string]int), make(map[mark]bool)}
	duplicates, most, after := 0, 0, 0
	for n := range l.ended {
		events := l.delivered(route, n)
		var before *life
		if n > 0 {
			before = &l.ended[n-1]
		}
		d := all.read(t, fmt.Sprintf("route %s, life %d", route, n), route, events, before)
		if duplicates += d; d > most {
			most, after = d, n
		}
		if l.ended[n].sure != nil {
			for m := range all.seen {
				all.sure[m] = true
			}
			for _, e := range events[l.ended[n].sure[route]:] {
				delete(all.sure, markOf(e))
			}
		}
	}
	t.Logf("route %s: %d duplicates after %d kills, at most %d, in life %d", route, duplicates, len(l.ended)-1, most, after)
	if route == "narrow" {
		return // this route gets only the latest state
	}
	if missing := l.history.missing(all.seen); len(missing) > 0 {
		t.Errorf("route %s: %d of %d changes were not delivered: %q", route, len(missing), l.history.count(), missing[:min(len(missing), 5)])
	}
}

// read records the deliveries of one life after another one that was killed, and returns the number
// of duplicates.
func (a *tally) read(t *testing.T, where, route string, events []routertest.Event, before *life) (duplicates int) {
	t.Helper()
	inLife := make(map[string]mark)
	for _, e := range events {
		m := markOf(e)
		if had, ok := inLife[m.uid]; ok && m.version <= had.version {
			t.Errorf("%s: %s at %d comes after %d", where, e, m.version, had.version)
		}
		inLife[m.uid] = m
		if a.seen[m] {
			duplicates++
		}
		switch {
		case a.sure[m]:
			t.Errorf("%s: %s at %d comes again, although it was delivered before a cut", where, e, m.version)
		case (a.seen[m] || m.version <= a.last[m.uid]) && (before == nil || !before.again(route, m)):
			t.Errorf("%s: %s at %d comes after %d, and was neither owed at the last cut nor came since", where, e, m.version, a.last[m.uid])
		}
	}
	for _, e := range events {
		m := markOf(e)
		a.seen[m] = true
		a.last[m.uid] = max(a.last[m.uid], m.version)
	}
	return duplicates
}

// quiet restarts the router after a clean stop, without changes in between: nothing may be
// delivered or listed. Then it makes one change.
func (l *lives) quiet(t *testing.T) {
	t.Helper()
	lists := func() (counted, probes, others int) {
		for _, r := range l.s.Requests(t, func(r sandboxtest.Request) bool { return r.Resource == "configmaps" && r.Verb == "list" }) {
			if routertest.IsProbe(r) {
				probes++
			} else {
				others++
			}
		}
		return l.s.RequestCount(t, "LIST", "configmaps"), probes, others
	}
	counted, probes, others := lists()
	before, watched := l.hook.count(), routertest.Lists(t, l.s, "configmaps", l.ns)
	for _, what := range []string{"", "o-last"} {
		r := l.start(t)
		r.Ready(t)
		want := 0
		if what != "" {
			want = 1
			l.history.maps.Make(routertest.ConfigMap(what, "1"))
			r.Expect(t, "all added "+l.ns+"/"+what)
			routertest.Poll(t, "the webhooks to get it", func() bool { return l.hook.count() >= before+2 })
		}
		if code := r.Stop(t); code != 0 { // it delivers its backlog before it ends
			t.Errorf("exit code %d", code)
		}
		if n, hooked := len(r.Events()), l.hook.count()-before; n != want || hooked != 2*want {
			t.Errorf("after a clean stop, and %q: %d deliveries to standard output and %d to the webhooks, want %d and %d",
				what, n, hooked, want, 2*want)
		}
	}
	// The API server also counts the probes, each of which lists a single object.
	routertest.Poll(t, "the API server's own count to agree", func() bool {
		c, p, _ := lists()
		return c-counted == p-probes
	})
	if _, _, o := lists(); o != others || routertest.Lists(t, l.s, "configmaps", l.ns) != watched {
		t.Errorf("%d lists after a clean stop, want none", o-others+routertest.Lists(t, l.s, "configmaps", l.ns)-watched)
	}
}
