package sim_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
)

// world executes one schedule.
type world struct {
	c     *cluster
	r     *receiver
	disk  *disk
	dir   string
	file  string // path of the configuration
	trace func(format string, args ...any)

	plans    *compile.Plans
	routes   []*route
	narrowed bool   // the source of the route with a rule about time has a narrower selector
	timed    *route // the route with a rule about time, which never changes; nil: none
	lives    int
	l        *life     // nil: the router is down
	past     []*life   // lives that have ended
	well     time.Time // begin of the healthy state; zero: not healthy
	// number of lists when the first life was complete; -1: not yet
	listed  int
	letters []rejection // expected dead letters at the end
	failed  []string
}

// route is a route with all its names and settings over time.
type route struct {
	names       []string // the last one is the present name
	from        string
	sinks       []string
	handler     string // empty, h or emit
	filter      bool   // it rejects the name c
	time        string // rule about time, which replaces its ops
	rule        string // another filter, in written schedules
	gathers     string // how it collects deltas, see time_test.go
	maxAge      bool
	behind      *behind // a limit behind the route; nil: none
	relayed     bool    // an upstream route with its from, filter and existing feeds it
	existing    bool
	latest      bool
	overflow    string
	memory      int
	disk        string
	batch, wait int
	concurrency int
	attempts    int
	onFailure   string
	removed     bool
	// number of moments before those that it must deliver; unknown: not determined yet
	since        int
	born         int // the life in which it was added
	bornInReload bool
	returned     bool // it was removed and added again
}

const unknown = 1 << 30

func (r *route) name() string { return r.names[len(r.names)-1] }

// wants reports whether the route must deliver a moment as a state.
func (r *route) wants(name string, m moment) bool {
	return !m.gone && (m.web || r.from != "web") && (!r.filter || name != "c")
}

// relays reports whether the configuration has the route as two routes, of which the first delivers
// to the second.
func (r *route) relays() bool {
	return r.relayed && r.gathers == "" && !r.maxAge && r.rule == "" && (r.time == "" || r.time == everything)
}

// intake returns the name of the route that gets the deltas of the source.
func (r *route) intake() string {
	if r.relays() {
		return r.name() + intake
	}
	return r.name()
}

// intake is the end of the name of an upstream route.
const intake = "-in"

func (r *route) yaml() string {
	if !r.relays() {
		return r.yamlOf() + r.behind.yaml()
	}
	in := *r
	in.relayed, in.names, in.sinks, in.handler, in.onFailure = false, slices.Clone(r.names), []string{"{route: " + r.name() + "}", "b"}, "", "deadLetter"
	for i := range in.names {
		in.names[i] += intake
	}
	fed := *r
	fed.from, fed.filter, fed.existing, fed.latest = "", false, false, false
	return in.yamlOf() + fed.yamlOf()
}

func (r *route) yamlOf() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - {name: %s, to: [%s%s], queue: {memory: %d, disk: %s}, batch: {%s}, concurrency: %d, onFailure: %s, ",
		r.name(), strings.Join(r.sinks, ", "), r.behind.targets(), r.memory, r.disk, r.batchYAML(), r.concurrency, r.onFailure)
	if r.time == "" {
		r.time = everything
	}
	if r.from != "" {
		fmt.Fprintf(&b, "from: %s, overflow: %s, ", r.from, r.overflow)
	}
	fmt.Fprintf(&b, "%s, retry: {attempts: %d, backoff: 20ms, max: 500ms}", r.time, r.attempts)
	if len(r.names) > 1 {
		fmt.Fprintf(&b, ", id: %s", r.names[0])
	}
	switch r.handler {
	case "":
	case "joint":
		b.WriteString(`, emit: '{"all": size(objects)}'`)
	case "emit":
		b.WriteString(`, emit: '{"all": list("pods").size()}'`)
	default:
		b.WriteString(", handler: " + r.handler)
	}
	if r.filter {
		b.WriteString(`, filter: object.metadata.name != "c"`)
	}
	if r.rule != "" {
		fmt.Fprintf(&b, ", filter: %q", r.rule)
	}
	if r.existing {
		b.WriteString(", existing: deliver")
	}
	if r.latest {
		b.WriteString(", deliver: latest")
	}
	if r.gathers == quietly {
		fmt.Fprintf(&b, ", debounce: {quiet: %s, max: %s}", quietFor, quietMost)
	}
	if r.maxAge {
		fmt.Fprintf(&b, ", maxAge: %s", oldest)
	}
	return b.String() + "}\n"
}

func (r *route) batchYAML() string {
	if r.gathers == grouped {
		return fmt.Sprintf("by: object.metadata.labels.app, size: %d, wait: %s", r.batch, gathered)
	}
	return fmt.Sprintf("size: %d, wait: %dms", r.batch, r.wait)
}

// nets reports whether the route delivers net changes.
func (r *route) nets() bool { return r.latest || r.gathers == quietly }

// all returns all routes.
func (w *world) all() []*route {
	if w.timed == nil {
		return w.routes
	}
	return append(slices.Clone(w.routes), w.timed)
}

// write writes the configuration.
func (w *world) write() {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\ncluster: {name: sim}\nstate: {dir: %s}\nhandlers: {h: {sim: {}}, chain: {sim: {}}}\nsinks: {a: {sim: {}}, b: {sim: {}}, c: {sim: {}}}\n", w.dir)
	b.WriteString("sources:\n  pods: {resource: v1/pods}\n  web: {resource: v1/pods, labelSelector: app=web}\n")
	if w.timed != nil {
		fmt.Fprintf(&b, "  scope: {resource: v1/pods%s}\n", w.scope())
	}
	b.WriteString("routes:\n")
	for _, r := range w.all() {
		if !r.removed {
			b.WriteString(r.yaml())
		}
	}
	next := w.file + ".next"
	if err := errors.Join(os.WriteFile(next, []byte(b.String()), 0o600), os.Rename(next, w.file)); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace("%s life %d moment %d: "+format, append([]any{time.Now().Format("04:05.000"), w.lives, w.c.now()}, args...)...)
	}
}

// pass lets time pass, and records an end of the process.
func (w *world) pass(d time.Duration) {
	if w.l == nil {
		time.Sleep(d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.l.ended:
	}
	w.rest()
}

// rest waits until only the clock can cause a change.
func (w *world) rest() {
	synctest.Wait()
	if w.l == nil {
		return
	}
	if w.l.dead.Load() {
		w.say("crashed at a transaction")
		w.finish()
		return
	}
	select {
	case err := <-w.l.done:
		w.fail("life %d ended by itself: %v", w.lives, err)
		w.l.done <- err
		w.finish()
		return
	default:
	}
	w.determine()
	w.checkBounds()
}

// determine sets the moment from which the routes must deliver all changes: both watches are
// complete and on disk.
func (w *world) determine() {
	now := time.Now()
	if !w.c.heard(w.watches()) || w.r.troubled() || w.disk.troubled() {
		w.well = time.Time{}
		return
	}
	if w.well.IsZero() {
		w.well = now
	}
	if !w.l.savedAfter(w.well.Add(500 * time.Millisecond)) {
		return
	}
	if w.listed < 0 {
		w.listed = w.c.listed()
	}
	for _, r := range w.all() {
		if r.since == unknown && (!r.bornInReload || w.lives > r.born) {
			r.since = w.c.now()
		}
	}
}

// settle repairs everything and waits until there is nothing left to do.
func (w *world) settle() {
	w.r.healAll()
	w.c.setDown(false)
	if w.disk.troubled() {
		w.disk.set(0, 0, false)
		w.pass(6 * time.Second) // for a transaction in progress
	}
	last, heard := look{took: -1}, false
	gathers := slices.ContainsFunc(w.all(), func(r *route) bool { return r.gathers != "" || r.behind != nil && r.behind.gathers != "" })
	for round := range 60 {
		if len(w.failed) > 0 {
			return
		}
		if round == 15 && slices.ContainsFunc(w.routes, func(r *route) bool { return r.onFailure == "pause" && r.overflow == "block" }) {
			// A route that is paused and full blocks its source until the router is restarted.
			w.stop()
		}
		if w.l == nil {
			w.begin()
		}
		w.pass(1500 * time.Millisecond)
		// Until a condition with for is reported and a cut contains the report.
		if w.timed != nil {
			w.pass(held)
		}
		if w.timed != nil && w.timed.limited() { // and for reports that a limit held back
			w.pass(rare)
		}
		now := w.look()
		before := heard || !gathers // otherwise the last deltas may be waiting in a window
		heard = w.c.heard(w.watches())
		if w.l != nil && last == now && before && heard && w.l.writes() {
			return
		}
		last = now
	}
	w.fail("life %d never comes to rest: %d watches wanted, heard %v, %d deliveries, %d owed",
		w.lives, w.watches(), w.c.heard(w.watches()), last.took, last.owed)
}

// stop stops the router like SIGTERM.
func (w *world) stop() {
	if w.l == nil {
		return
	}
	w.say("stop")
	w.finish()
}

// quiet stops the settled router and starts it again: nothing may be delivered or listed.
func (w *world) quiet() {
	w.settle()
	if w.l != nil {
		w.l.arm(0, false) // disarm a crash whose transaction has not come yet
	}
	w.stop()
	took, lists := w.r.took(), w.c.listed()
	w.begin()
	w.pass(2 * time.Second)
	if w.l == nil {
		return
	}
	for _, r := range w.routes {
		if r.onFailure == "pause" && (w.r.refused() || r.maxAge) {
			return // it continues only now
		}
	}
	if n := w.r.took() - took; n > 0 {
		w.fail("after a clean stop and a start with nothing changed, %d deliveries came", n)
	}
	if n := w.c.listed() - lists; n > 0 {
		w.fail("after a clean stop and a start with nothing changed, the cluster was listed %d times", n)
	}
}

// overtake restores an older state of the cluster, whose versions have passed those of the router
// when it connects again, so that the router cannot notice. Then it requests a relist.
func (w *world) overtake(a, b int) {
	if w.l == nil {
		return
	}
	if w.c.backup == nil {
		w.c.save()
		for i := range 2 + b%3 {
			w.c.happen(nameOf(a+i), change(b+i)%changes, i%2 == 0)
		}
	}
	w.settle()
	w.pass(6 * time.Second) // until a cut
	if w.l == nil {
		return
	}
	w.say("overtake")
	w.c.setDown(true)
	w.c.rewind()
	w.c.advance(1000)
	w.c.setDown(false)
	w.pass(3 * time.Second)
	if b%2 == 0 {
		w.r.set("a", []trouble{blocked, refusing}[a%2])
	}
	w.relist()
	if b%3 > 0 {
		w.crash()
		w.r.healAll()
	}
	for range 20 {
		if w.settle(); len(w.failed) > 0 || w.relist() {
			w.pass(6 * time.Second)
			return
		}
		if slices.ContainsFunc(w.routes, func(r *route) bool { return r.onFailure == "pause" && r.overflow == "block" }) {
			w.stop() // as in settle
		}
	}
	w.fail("life %d is never listed anew", w.lives)
}

// rewind restores an older state of the cluster after the router has seen and saved a newer one.
func (w *world) rewind(crash bool) {
	if w.c.backup == nil {
		return
	}
	w.settle()
	w.pass(6 * time.Second) // until a cut
	if w.l == nil || w.c.backup == nil {
		return
	}
	lists := w.c.listed()
	w.say("rewind")
	w.c.rewind()
	if crash {
		w.crash()
	}
	w.settle()
	for range 20 {
		if w.c.listed() >= lists+w.watches() {
			break
		}
		w.pass(3 * time.Second)
	}
	w.pass(6 * time.Second)
}

// clean removes the files of the previous schedule.
func clean(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
	}
	return nil
}
