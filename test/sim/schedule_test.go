package sim_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"
)

// step is one action. The meaning of a and b depends on it.
type step struct {
	what string
	a, b int
	up   bool // a stopped router is started before
}

// String renders a step for failures.
func (s step) String() string {
	up := ""
	if s.up {
		up = "+"
	}
	return fmt.Sprintf("%s%s(%d,%d)", up, s.what, s.a, s.b)
}

// kinds returns all actions. Repeated ones are more frequent.
func kinds() []string {
	return []string{
		"change", "change", "change", "change", "change", "change", "burst", "burst", "group", "group",
		"sleep", "sleep", "sleep", "sleep", "cut", "bookmark", "truncate", "down", "compact",
		"trouble", "trouble", "trouble", "heal", "heal", "slowDisk", "fullDisk", "mendDisk",
		"crash", "crash", "crashAt", "crashAt", "crashAt", "crashAt", "stop", "quiet", "reload", "reload", "edit", "backup", "rewind", "overtake",
		"siege", "siege", "storm", "storm", "edge", "edge", "resync", "resync", "retry", "barren", "turnScope", "turnScope",
	}
}

func drawStep(t *rapid.T) step {
	return step{
		what: rapid.SampledFrom(kinds()).Draw(t, "what"), a: rapid.IntRange(0, 63).Draw(t, "a"), b: rapid.IntRange(0, 63).Draw(t, "b"),
		up: rapid.IntRange(0, 2).Draw(t, "up") > 0,
	}
}

func drawRoute(t *rapid.T) *route {
	r := &route{since: unknown}
	r.from = rapid.SampledFrom([]string{"pods", "pods", "web"}).Draw(t, "from")
	r.sinks = rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "sinks")
	r.handler = rapid.SampledFrom([]string{"", "", "", "h", "h", "emit"}).Draw(t, "handler")
	r.filter = rapid.IntRange(0, 3).Draw(t, "filter") == 3
	r.existing = rapid.Bool().Draw(t, "existing")
	r.latest = rapid.IntRange(0, 3).Draw(t, "latest") == 3
	r.overflow = rapid.SampledFrom([]string{"coalesce", "coalesce", "block", "dropOldest"}).Draw(t, "overflow")
	r.memory = rapid.SampledFrom([]int{1000, 1000, 1, 2, 5}).Draw(t, "memory")
	r.disk = rapid.SampledFrom([]string{"0", "0", "2Ki", "1Gi"}).Draw(t, "disk")
	r.batch = rapid.SampledFrom([]int{1, 3, 64}).Draw(t, "batch")
	if r.overflow == "dropOldest" && r.disk == "0" && r.batch >= r.memory {
		r.batch = 1 // otherwise the configuration would be refused
	}
	r.wait = rapid.SampledFrom([]int{0, 10}).Draw(t, "wait")
	r.concurrency = rapid.IntRange(1, 3).Draw(t, "concurrency")
	r.attempts = rapid.IntRange(0, 2).Draw(t, "attempts")
	r.relayed = rapid.IntRange(0, 4).Draw(t, "relayed") == 4
	r.onFailure = rapid.SampledFrom([]string{"deadLetter", "deadLetter", "drop", "pause"}).Draw(t, "onFailure")
	return r
}

// schedule has all random parts of a run.
type schedule struct {
	routes    []*route
	timed     *route
	there     int // number of initial objects
	watchList bool
	// no steps until the state is healthy and saved, so that the routes must deliver everything
	calm  bool
	steps []step
}

func drawSchedule(t *rapid.T) schedule {
	s := schedule{there: rapid.IntRange(0, 3).Draw(t, "there"), watchList: rapid.IntRange(0, 3).Draw(t, "watchList") > 0, calm: rapid.Bool().Draw(t, "calm")}
	for i := range rapid.IntRange(1, 3).Draw(t, "routes") {
		r := drawRoute(t)
		r.names = []string{fmt.Sprintf("r%d", i)}
		s.routes = append(s.routes, r)
	}
	switch {
	case !*timed:
	case rapid.IntRange(0, 3).Draw(t, "timed") == 3:
		s.timed = drawTimed(t)
		s.routes = s.routes[:max(1, len(s.routes)-1)] // to keep the cost of a schedule
	case rapid.IntRange(0, 5).Draw(t, "waits") == 5:
		drawWaits(t, s.routes[len(s.routes)-1])
	}
	s.steps = rapid.SliceOfN(rapid.Custom(drawStep), 1, 20).Draw(t, "steps")
	return s
}

// names is the number of possible objects.
const names = 4

func nameOf(n int) string { return string(rune('a' + n%names)) }

// run executes the schedule.
func (w *world) run(s schedule) {
	for i := range s.there {
		w.c.happen(nameOf(i), update, i%2 == 0)
	}
	w.c.noWatchList = !s.watchList
	w.begin()
	if s.calm {
		w.calm()
	}
	for _, step := range s.steps {
		if w.l == nil && step.up {
			w.say("start")
			w.begin()
		}
		w.say("%v", step)
		w.do(step)
		w.rest()
		if len(w.failed) > 0 {
			break
		}
	}
	w.end()
}

// calm waits until the state is healthy and saved.
func (w *world) calm() {
	w.pass(2500 * time.Millisecond)
	w.c.bookmark()
	w.pass(2500 * time.Millisecond)
}

// end drains everything, including paused routes.
func (w *world) end() {
	w.say("end")
	w.quiet()
	w.settle()
	w.checkCache()
	w.stop()
}

func pause(n int) time.Duration {
	pauses := []time.Duration{
		time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond, 50 * time.Millisecond,
		300 * time.Millisecond, 990 * time.Millisecond, 1010 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond,
	}
	return pauses[n%len(pauses)]
}

func (w *world) do(s step) {
	switch s.what {
	case "change":
		w.c.happen(nameOf(s.a), change(s.b%int(changes)), s.b%3 > 0)
	case "burst":
		for i := range 1 + s.b%6 {
			w.c.happen(nameOf(s.a+i*(s.b%2)), change((s.a+s.b*i)%int(changes)), i%3 > 0)
		}
	case "group":
		w.c.group(s.a, s.b)
	case "sleep":
		w.pass(pause(s.a))
	case "cut":
		w.c.cut(s.a%2 == 0)
	case "bookmark":
		w.c.bookmark()
	case "truncate":
		w.c.truncateNext(1 + s.a%4)
	case "down":
		w.c.setDown(true)
		w.pass(pause(s.a))
		w.c.setDown(false)
	case "compact":
		w.c.compact()
		w.c.cut(s.a%2 == 0)
	case "trouble":
		w.r.set([]string{"a", "a", "b", "h", "emit", "joint"}[s.a%6], trouble(1+s.b%int(troubles-1)))
	case "heal":
		w.r.healAll()
	default:
		w.doLife(s)
	}
}

func (w *world) doLife(s step) {
	switch s.what {
	case "slowDisk":
		w.disk.set(pause(s.a), pause(s.b), false)
	case "fullDisk":
		w.disk.set(0, 0, true)
	case "mendDisk":
		w.disk.set(0, 0, false)
	case "crash":
		w.crash()
	case "crashAt":
		if w.l != nil {
			w.l.arm(1+s.a%3, s.b%2 == 0)
		}
	case "stop":
		w.stop()
	case "quiet":
		w.quiet()
	case "reload":
		w.reload(s.a, s.b)
	case "edit":
		w.edit(s.a, s.b)
	case "siege":
		w.siege(s.a, s.b)
	case "edge":
		w.edge(s.a, s.b)
	case "storm":
		w.storm(s.a, s.b)
	case "resync":
		w.resync(s.a, s.b)
	case "retry":
		w.retry(s.a, s.b)
	case "turnScope":
		if w.turnScope(s.a, s.b); s.b%3 > 0 {
			w.c.happen(nameOf(s.b), change(s.a%int(changes)), true)
			w.turnScope(s.b, s.a)
		}
	case "barren":
		w.barren(s.a, s.b)
	case "backup":
		w.c.save()
	case "rewind":
		w.rewind(s.a%2 == 0)
	case "overtake":
		w.overtake(s.a, s.b)
	}
}
