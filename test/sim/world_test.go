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

// world is one schedule at work.
type world struct {
	c     *cluster
	r     *receiver
	disk  *disk
	dir   string
	file  string // the configuration
	trace func(format string, args ...any)

	plans  *compile.Plans
	routes []*route
	timed  *route // has a rule about time, and stays as it is; nil: there is none
	lives  int
	l      *life     // nil: the router is down
	past   []*life   // that have ended
	well   time.Time // since when all is well; zero: it is not
	// how often the cluster had been listed when the first life was complete; -1: not yet
	listed  int
	letters []rejection // that have to be there in the end
	failed  []string
}

// route is a route over all the names and settings that it has.
type route struct {
	names       []string // the last is the one that it has
	from        string
	sinks       []string
	handler     string // empty, h or emit
	filter      bool   // wants nothing of the name c
	time        string // what it has in the place of its ops
	rule        string // another filter, of a schedule that is written down
	gathers     string // how it waits for more, see time_test.go
	maxAge      bool
	relayed     bool // another route, of its from, filter and existing, feeds it
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
	// what happened after so many moments it has to tell; unknown: not determined yet
	since        int
	born         int // the life in which it was added
	bornInReload bool
	returned     bool // it was away, and back
}

const unknown = 1 << 30

func (r *route) name() string { return r.names[len(r.names)-1] }

// wants reports whether the route is to tell of a moment as a state.
func (r *route) wants(name string, m moment) bool {
	return !m.gone && (m.web || r.from != "web") && (!r.filter || name != "c")
}

// relays reports whether the route stands in the configuration as two, of which the first delivers
// to the second.
func (r *route) relays() bool {
	return r.relayed && r.gathers == "" && !r.maxAge && r.rule == "" && (r.time == "" || r.time == everything)
}

// intake is the name of the route that gets the deltas of the source.
func (r *route) intake() string {
	if r.relays() {
		return r.name() + intake
	}
	return r.name()
}

// intake is what the name of a route ends with that delivers to another one.
const intake = "-in"

func (r *route) yaml() string {
	if !r.relays() {
		return r.yamlOf()
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
	fmt.Fprintf(&b, "  - {name: %s, to: [%s], queue: {memory: %d, disk: %s}, batch: {%s}, concurrency: %d, onFailure: %s, ",
		r.name(), strings.Join(r.sinks, ", "), r.memory, r.disk, r.batchYAML(), r.concurrency, r.onFailure)
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

// nets reports whether the route tells of the net change.
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
	fmt.Fprintf(&b, "version: 1\ncluster: {name: sim}\nstate: {dir: %s}\nhandlers: {h: {sim: {}}}\nsinks:\n  a: {sim: {}}\n  b: {sim: {}}\n", w.dir)
	b.WriteString("sources:\n  pods: {resource: v1/pods}\n  web: {resource: v1/pods, labelSelector: app=web}\nroutes:\n")
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

// watches is how many there are.
const watches = 2

func (w *world) fail(format string, args ...any) {
	w.failed = append(w.failed, fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace("%s life %d moment %d: "+format, append([]any{time.Now().Format("04:05.000"), w.lives, w.c.now()}, args...)...)
	}
}

// pass lets time pass. If the process ends meanwhile, that is noted.
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

// rest waits until nothing moves without the clock.
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

// determine notes from when on the routes are responsible for what happens: both watches are
// complete, and that is on the disk.
func (w *world) determine() {
	now := time.Now()
	if !w.c.heard(watches) || w.r.troubled() || w.disk.troubled() {
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

// settle mends everything and waits until nothing is left to do.
func (w *world) settle() {
	w.r.healAll()
	w.c.setDown(false)
	if w.disk.troubled() {
		w.disk.set(0, 0, false)
		w.pass(6 * time.Second) // for a transaction that is on its way
	}
	took, heard := -1, false
	gathers := slices.ContainsFunc(w.routes, func(r *route) bool { return r.gathers != "" })
	for round := range 60 {
		if len(w.failed) > 0 {
			return
		}
		if round == 15 && slices.ContainsFunc(w.routes, func(r *route) bool { return r.onFailure == "pause" && r.overflow == "block" }) {
			// a route that is paused and full stops its source, until the router is started anew
			w.stop()
		}
		if w.l == nil {
			w.begin()
		}
		w.pass(1500 * time.Millisecond)
		// what is to hold for a while is told when that is over, and a cut has it
		if w.timed != nil {
			w.pass(held)
		}
		if w.timed != nil && w.timed.limited() { // likewise, what a limit held back
			w.pass(rare)
		}
		now := w.r.took()
		before := heard || !gathers // else what was heard last may be waiting for more
		heard = w.c.heard(watches)
		if w.l != nil && took == now && before && heard && w.l.writes() {
			return
		}
		took = now
	}
	w.fail("life %d never comes to rest: %d watches wanted, heard %v, %d deliveries", w.lives, watches, w.c.heard(watches), took)
}

// stop stops the router as SIGTERM does.
func (w *world) stop() {
	if w.l == nil {
		return
	}
	w.say("stop")
	w.finish()
}

// quiet stops the router when all is done and starts it again: nothing is to come, and nothing to
// be listed.
func (w *world) quiet() {
	w.settle()
	if w.l != nil {
		w.l.arm(0, false) // a crash that was to come at a transaction that has not come yet
	}
	w.stop()
	took, lists := w.r.took(), w.c.listed()
	w.begin()
	w.pass(2 * time.Second)
	if w.l == nil {
		return
	}
	for _, r := range w.routes {
		if r.onFailure == "pause" && w.r.refused() {
			return // it goes on now
		}
	}
	if n := w.r.took() - took; n > 0 {
		w.fail("after a clean stop and a start with nothing changed, %d deliveries came", n)
	}
	if n := w.c.listed() - lists; n > 0 {
		w.fail("after a clean stop and a start with nothing changed, the cluster was listed %d times", n)
	}
}

// overtake restores an older state of the cluster, which has passed what the router has seen when
// it comes back: nobody can notice that. Somebody has everything listed.
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
	w.pass(6 * time.Second) // a cut
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

// rewind restores an older state of the cluster, once the router has seen and saved more than that.
func (w *world) rewind(crash bool) {
	if w.c.backup == nil {
		return
	}
	w.settle()
	w.pass(6 * time.Second) // a cut
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
		if w.c.listed() >= lists+watches {
			break
		}
		w.pass(3 * time.Second)
	}
	w.pass(6 * time.Second)
}

// clean removes what a schedule before this one left.
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
