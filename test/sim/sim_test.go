// Package sim runs whole routers through random schedules: [router.Run] with its real
// configuration, watches, stores, routes, queues and state file, between an API server that is a
// model (lists, streams of what there is, watches, bookmarks, 410, breaks in the middle of a word,
// restored backups) and sinks and handlers that are blocked, slow, down, forgetful or refuse some
// objects for good. The clock is that of testing/synctest. The process is killed at any moment, or
// before or after any transaction of the state file, which may also be slow or full; it is stopped,
// reloaded and started again, its API is used, and the cluster changes meanwhile. In the end
// everything is mended and delivered, and what the sinks took is compared with what happened
// (oracle_test.go): docs/GUARANTEES.md says what must hold.
//
//	go test ./test/sim                                   10,000 schedules (200 under the race detector)
//	go test ./test/sim -rapid.checks=1000000             any number
//	go test ./test/sim -sim.timed=false                  none with when, for, every, limit, ops: deleted with for, debounce, batch.by, maxAge
//	go test ./test/sim -rapid.seed=N                     the schedules that a failure names
//	go test ./test/sim -rapid.failfile=F -sim.trace      the one that failed, cut short, and what happens in it
//
// What replays: the schedule, the configuration, and each moment on the clock. What does not:
// goroutines that run at the same moment of the clock do so in any order, select and maps choose at
// random, and pauses between tries have a random part. So a failure may need some runs (-count=20,
// or GOMAXPROCS=1, which comes nearest to the same order); rapid then says that it is flaky, which
// means this.
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

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

var (
	trace = flag.Bool("sim.trace", false, "say what happens")
	timed = flag.Bool("sim.timed", true, "more than a third of the schedules have a route with a rule about time")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := choose(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	debug.SetGCPercent(1000)
	// client-go slows down errors by a clock that all bubbles share, each of which begins in the
	// same year.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// choose sets how many schedules there are, if nobody says so.
func choose() error {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if set || os.Getenv("RAPID_CHECKS") != "" {
		return nil
	}
	n := "10000"
	if raceDetector || testing.Short() {
		n = "200"
	}
	return flag.Set("rapid.checks", n)
}

// folder returns one in memory, if the system has such.
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

// TestSchedules: see the package comment.
func TestSchedules(t *testing.T) {
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
