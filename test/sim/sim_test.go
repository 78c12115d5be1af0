// Package sim runs whole routers through random schedules: [router.Run] with its real
// configuration, watches, stores, routes, queues and state file. On one side is a model of the API
// server with lists, streams of initial objects, watches, bookmarks, 410, breaks in the middle of
// an event, and restored backups. On the other side are sinks and handlers that may be blocked,
// slow, unavailable or forgetful, or reject some objects for good. The clock is that of
// testing/synctest. The schedule kills the process at any moment, or before or after any
// transaction of the state file, which may also be slow or full; it stops, reloads and restarts the
// router, uses its API, and changes the cluster. At the end it repairs everything, waits until all
// is delivered, and compares the deliveries with the history (oracle_test.go): docs/GUARANTEES.md
// lists the guarantees.
//
//	go test ./test/sim                                   500 schedules (100 under the race detector)
//	EFFORT=full go test ./test/sim                       10,000 schedules (1,000), or with soak 1,000,000 (20,000)
//	go test ./test/sim -rapid.checks=1000000             any number
//	go test ./test/sim -sim.timed=false                  no rules about time (when, for, every, limit, debounce, batch.by, maxAge)
//	go test ./test/sim -rapid.seed=N                     the schedules of a reported failure
//	go test ./test/sim -rapid.failfile=F -sim.trace      the failed schedule, minimized, with a trace
//
// A repeated run has the same schedule, configuration and times on the clock. It differs in the
// order of goroutines at the same time on the clock, in the random choices of select and maps, and
// in the random part of delays. So a failure may need some runs (-count=20, or GOMAXPROCS=1, which
// comes nearest to the same order); rapid then reports that the test is flaky, which means this.
package sim_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

var (
	trace = flag.Bool("sim.trace", false, "say what happens")
	timed = flag.Bool("sim.timed", true, "more than a third of the schedules have a route with a rule about time")
)

// schedules is the number of schedules at the efforts fast, full and soak. Under the race detector
// a schedule takes ten times as long.
func schedules() (fast, full, soak int) {
	if effort.Race {
		return 500, 1000, 20_000
	}
	return 500, 10_000, 1_000_000
}

func TestMain(m *testing.M) {
	effort.Checks(schedules())
	debug.SetGCPercent(1000)
	// client-go slows down errors by a clock that all bubbles share, although each begins in the
	// same year.
	utilruntime.ErrorHandlers = nil
	leaks.Main(m)
}

// folder returns a folder in memory, if the system has one.
func folder(t *testing.T) string {
	t.Helper()
	if os.Getenv("TMPDIR") == "" {
		if dir, err := os.MkdirTemp("/dev/shm", "deltarouter-sim-"); err == nil { //nolint:usetesting // that one is on the disk
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// TestSchedules runs random schedules, see the package comment.
func TestSchedules(t *testing.T) {
	// Guarantee: limit, limit-of-conditions, debounce, max-age, simulated, conditions-alternate
	// Guarantee: unchanged-updates, goroutine-per-event, barren-watch, left-unseen
	dir := folder(t)
	t.Cleanup(informer.QuietKlog(slog.New(slog.DiscardHandler)))
	var plans compile.Plans
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSchedule(rt)
		must.Succeed(rt, clean(dir))
		c := newCluster()
		w := &world{
			c: c, r: newReceiver(c), disk: &disk{}, dir: filepath.Join(dir, "state"), file: filepath.Join(dir, "config.yaml"),
			plans: &plans, routes: s.routes, timed: s.timed, listed: -1,
		}
		if *trace {
			w.trace = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		}
		func() {
			defer func() {
				if stuck := recover(); stuck != nil {
					stacks := make([]byte, 1<<20)
					rt.Fatalf("%v\nsteps: %v\nroutes:\n%s\n%s", stuck, s.steps, w.describe(), stacks[:runtime.Stack(stacks, true)])
				}
			}()
			synctest.Test(t, func(*testing.T) { w.run(s) })
		}()
		if len(w.failed) == 0 {
			w.check()
		}
		if len(w.failed) > 0 {
			rt.Fatalf("%s\nsteps: %v\nroutes:\n%s", strings.Join(w.failed, "\n"), s.steps, w.describe())
		}
	})
}
