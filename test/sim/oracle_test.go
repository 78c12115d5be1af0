package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// check compares the deliveries with the history.
func (w *world) check() {
	letters := w.checkFile()
	for _, letter := range w.letters {
		if !letters[letter] {
			w.fail("there is no dead letter %+v", letter)
		}
	}
	for _, wrong := range w.r.wrong {
		w.fail("%s", wrong)
	}
	if w.timed != nil {
		w.checkTimed()
		w.checkBehind()
	}
	for _, r := range w.routes {
		for _, sink := range r.sinks {
			v := &view{w: w, r: r, sink: sink, letters: letters, seen: map[string][]seen{}, again: map[int]bool{}}
			v.match()
			v.checkDuplicates()
			v.checkTimes()
			if r.removed || v.broken {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(w.c.past)) {
				v.checkFinal(name, w.c.past[name])
			}
		}
	}
}

// view is one route at one sink.
type view struct {
	w       *world
	r       *route
	sink    string
	letters map[rejection]bool // under the last names of the routes
	seen    map[string][]seen  // by name
	again   map[int]bool       // uids of which a dead letter was redelivered
	broken  bool               // further failures would only confuse
}

// seen is a delivery and its moment.
type seen struct {
	delivery

	moment int // index in the past of the name
}

func (s delivery) ends() bool { return s.op == "deleted" || s.op == "deselected" }

func (v *view) fail(format string, args ...any) {
	v.w.fail("route %s at sink %s: "+format, append([]any{v.r.name(), v.sink}, args...)...)
}

// match finds the moment of each delivery. Within a life moments must increase, and none may
// repeat.
func (v *view) match() {
	for _, d := range v.w.r.log {
		if d.sink != v.sink || !slices.Contains(v.r.names, d.route) {
			continue
		}
		if d.flagged { // legitimately out of order
			v.again[d.uid] = true
			continue
		}
		before, from := v.seen[d.name], 0
		if n := len(before); n > 0 && before[n-1].life == d.life {
			if from = before[n-1].moment; !before[n-1].doubtful && d.op != "sync" {
				from++
			}
			for i := n - 1; v.r.handler == "joint" && i >= 0 && before[i].doubtful && before[i].life == d.life; i-- {
				from = before[i].moment // the whole group is repeated
			}
		}
		past := v.w.c.past[d.name]
		at := slices.IndexFunc(past[from:], func(m moment) bool { return d.tells(m) && m.at <= d.order })
		// Whether an object that left the selector is gone is determined later; it may have
		// returned in between.
		if d.op == "deleted" && v.r.from == "web" && v.gone(d, past) {
			if early := slices.IndexFunc(past[from:], func(m moment) bool { return m.uid == d.uid && (m.gone || !m.web) }); early >= 0 {
				at = early
			}
		}
		if at < 0 {
			v.fail("%s is no moment after %s; past %s", d, last(before), show(past))
			v.broken = true
			return
		}
		v.seen[d.name] = append(before, seen{d, from + at})
	}
}

// gone reports whether the object of a delivery was deleted at that time.
func (v *view) gone(d delivery, past []moment) bool {
	return slices.ContainsFunc(past, func(m moment) bool { return m.gone && m.uid == d.uid && m.at <= d.order })
}

// tells reports whether the delivery can be about a moment.
func (s delivery) tells(m moment) bool {
	if m.uid != s.uid {
		return false
	}
	switch s.op {
	case "deleted":
		return m.gone
	case "deselected":
		return m.gone || !m.web
	}
	return !m.gone && m.n == s.n
}

// checkDuplicates checks that deliveries before the last cut of a life are never repeated.
func (v *view) checkDuplicates() {
	if v.w.c.rewound {
		return // some moments look alike
	}
	for name, all := range v.seen {
		first := map[int]seen{}
		for _, s := range all {
			before, again := first[s.moment]
			if s.ends() && s.n == 0 || s.op == "sync" {
				continue
			}
			// If an object left twice, the delivery may be about either time.
			again = again && (v.r.from != "web" || !s.ends())
			if again && before.life != s.life && !before.doubtful && before.at.Before(v.w.past[before.life-1].saved) {
				v.fail("%s: %s was delivered and saved in life %d, and comes again as %s", name, before, before.life, s)
			}
			// An event that a relist infers about it has no version of its own.
			if again && before.op == s.op && s.op != "deselected" &&
				before.route == s.route && before.id != s.id && v.r.handler != "joint" {
				v.fail("%s: %s and %s have different ids", name, before, s)
			}
			if !again || !s.doubtful {
				first[s.moment] = s
			}
		}
	}
}

// checkFinal checks that the last delivery of each name is about its last change since the route
// existed, and that each delivered object that was deleted was delivered as deleted.
func (v *view) checkFinal(name string, past []moment) {
	if v.r.overflow == "dropOldest" && v.r.memory < 100 {
		return
	}
	all := v.seen[name]
	final := past[len(past)-1]
	if v.r.wants(name, final) && (v.r.existing || final.at > v.r.since) && !v.unmoved(past, all) {
		if len(all) == 0 || all[len(all)-1].ends() || all[len(all)-1].n != final.n {
			v.missing("the last state", name, final, all)
		}
	}
	ended := map[int]int{} // by uid, its last moment
	for i, m := range past {
		ended[m.uid] = i
	}
	for uid, i := range ended {
		if v.r.wants(name, past[i]) || v.r.returned && past[i].at <= v.r.since {
			continue
		}
		if last := v.lastOf(all, uid); last != nil && !last.ends() {
			v.missing("the end", name, past[i], all)
		}
	}
	if v.exact() {
		v.checkEvery(name, past, all)
	}
}

// unmoved reports whether the route has nothing to deliver because its source never saw a change: a
// route that was paused and full blocked the source, and then a backup restored a state that the
// source had seen. That may be any state before the begin of the route, because the source may have
// been blocked earlier.
func (v *view) unmoved(past []moment, all []seen) bool {
	heldUp := func(r *route) bool { return r.onFailure == "pause" && r.overflow == "block" }
	if len(all) > 0 || !v.w.c.rewound || !slices.ContainsFunc(v.w.all(), heldUp) {
		return false
	}
	final := past[len(past)-1]
	return slices.ContainsFunc(past, func(m moment) bool {
		return m.at <= v.r.since && m.uid == final.uid && m.n == final.n && m.web == final.web && m.gone == final.gone
	})
}

// exact reports whether the route must deliver every moment: nothing was coalesced or dropped, and
// there was no list after the first one.
func (v *view) exact() bool {
	return !v.r.nets() && v.r.memory >= 100 && v.w.listed == v.w.c.lists && !v.r.bornInReload
}

func (v *view) checkEvery(name string, past []moment, all []seen) {
	told := map[int]bool{}
	for _, s := range all {
		told[s.moment] = true
	}
	for i, m := range past {
		if v.r.wants(name, m) && m.at > v.r.since && !told[i] {
			v.missing("a state", name, m, all)
		}
	}
}

func (v *view) lastOf(all []seen, uid int) *seen {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].uid == uid {
			return &all[i]
		}
	}
	return nil
}

// missing fails unless the delivery was rejected for good and treated according to the route's
// onFailure.
func (v *view) missing(what, name string, m moment, all []seen) {
	refused := false
	for _, op := range []string{"added", "updated", "deleted", "deselected"} {
		for _, route := range v.r.names {
			refused = refused || v.w.r.rejected[rejection{route, v.sink, m.uid, op}]
		}
		refused = refused || v.w.r.rejected[rejection{"", v.r.handler, m.uid, op}]
		if v.letters[rejection{v.r.name(), v.sink, m.uid, op}] || v.letters[rejection{v.r.name(), "", m.uid, op}] {
			return
		}
	}
	if (refused || v.r.maxAge) && (v.r.onFailure == "drop" || v.again[m.uid]) {
		return
	}
	v.fail("%s of %s is missing: %+v (refused: %v), since %d; told %s; past %s", what, name, m, refused, v.r.since, showSeen(all), show(v.w.c.past[name]))
}

// checkFile reads the final state file of the last life: the cache must equal the cluster, and
// nothing may be pending. It returns the dead letters.
func (w *world) checkFile() map[rejection]bool {
	db, err := checkpoint.Open(checkpoint.Config{Path: w.past[len(w.past)-1].file()})
	if err != nil {
		w.fail("%v", err)
		return nil
	}
	defer db.Close()
	if db.Quarantined() != "" {
		w.fail("the state file is damaged")
	}
	for _, selector := range []string{"", "app=web", "scope!=far"}[:w.watches()] {
		w.checkWatch(db, selector)
	}
	for _, r := range w.all() {
		if between, err := db.LoadRoute(r.intake(), checkpoint.Part{}, func(string) *event.Resource { return nil }); err != nil || len(between) > 0 && !r.removed {
			w.fail("route %s owes %d still, %v", r.intake(), len(between), err)
		}
		owed, err := db.LoadRoute(r.name(), checkpoint.Part{}, func(string) *event.Resource { return nil })
		if err != nil || len(owed) > 0 && !r.removed {
			w.fail("route %s owes %d still, %v", r.name(), len(owed), err)
		}
	}
	return w.loadLetters(db)
}

func (w *world) checkWatch(db *checkpoint.DB, selector string) {
	spec := informer.Spec{LabelSelector: selector, Cache: "full"}
	spec.Resource.Version, spec.Resource.Resource = "v1", "pods"
	saved, err := db.LoadWatch(spec.ID())
	if err != nil || saved == nil {
		w.fail("watch %s: %v, %v", spec.ID(), saved, err)
		return
	}
	var have, want []string
	for _, o := range saved.Objects {
		parsed, err := event.ParseObject(&event.Resource{}, string(o.JSON))
		if err != nil {
			w.fail("%v", err)
			return
		}
		n := parsed.Raw().Get("metadata").Get("annotations").Get("n").Str()
		have = append(have, fmt.Sprintf("%s:%s:%s", parsed.Key().Name, parsed.UID(), n))
	}
	for _, o := range w.c.objects {
		if selects(selector, &o) {
			want = append(want, fmt.Sprintf("%s:%d:%d", o.name, o.uid, o.n))
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		w.fail("watch of %q: saved %v, the cluster has %v", selector, have, want)
	}
	if len(saved.Intents) > 0 || saved.Relisting {
		w.fail("watch of %q: intents %v, relisting %v", selector, saved.Intents, saved.Relisting)
	}
}

func (w *world) loadLetters(db *checkpoint.DB) map[rejection]bool {
	all := map[rejection]bool{}
	letters, err := db.Letters(checkpoint.LettersConfig{Max: 1 << 20, MaxAge: 1 << 60})
	if err != nil {
		w.fail("%v", err)
		return all
	}
	loaded, err := letters.Load(letters.IDs("", 0, 0))
	if err != nil {
		w.fail("%v", err)
	}
	for _, l := range loaded {
		route := l.Route
		for _, r := range w.routes {
			if slices.Contains(r.names, l.Route) {
				route = r.name()
			}
		}
		uid := 0
		_, _ = fmt.Sscan(l.Delta.Object().UID(), &uid)
		all[rejection{route, l.Sink, uid, l.Delta.Op.String()}] = true
	}
	return all
}

// checkCache compares the cache in the view of a route with look-ups with the cluster.
func (w *world) checkCache() {
	w.r.mu.Lock()
	cache := w.r.cache
	w.r.mu.Unlock()
	if cache == nil || w.l == nil || !slices.ContainsFunc(w.routes, func(r *route) bool { return r.handler == "emit" && !r.removed }) {
		return
	}
	if n := cache.Count("pods", "", ""); n != len(w.c.objects) {
		w.fail("the cache has %d objects, the cluster %d", n, len(w.c.objects))
	}
	for name, o := range w.c.objects {
		cached := cache.Get("pods", "default", name)
		if cached == nil || cached.Raw().Get("metadata").Get("annotations").Get("n").Str() != fmt.Sprint(o.n) {
			w.fail("%s is not in the cache as it is", name)
		}
	}
}

// String renders a delivery for failures.
func (s delivery) String() string {
	text := fmt.Sprintf("[life %d, moment %d, %s %s uid %d n %d]", s.life, s.order, s.op, s.name, s.uid, s.n)
	if s.doubtful {
		text += "?"
	}
	return text
}

func last(all []seen) string {
	if len(all) == 0 {
		return "the beginning"
	}
	return all[len(all)-1].String()
}

func showSeen(all []seen) string {
	var texts []string
	for _, s := range all {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, " ")
}

func show(past []moment) string {
	var texts []string
	for _, m := range past {
		text := fmt.Sprintf("%d:%d/%d", m.at, m.uid, m.n)
		if m.gone {
			text = fmt.Sprintf("%d:%d gone", m.at, m.uid)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func (w *world) describe() string {
	var b strings.Builder
	for _, r := range w.all() {
		fmt.Fprintf(&b, "%s    names %v since %d removed %v\n", r.yaml(), r.names, r.since, r.removed)
	}
	return b.String()
}
