package fleet_test

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
)

func (w *world) worker() *fleet.Node { return w.fleet.Workers[w.random.IntN(len(w.fleet.Workers))] }

// workerKinds returns the kinds of rounds about workers.
func workerKinds() []kind {
	return []kind{
		{name: "kill worker", do: killWorker},
		{name: "pause worker", do: pauseWorker},
		{name: "restart worker", do: restartWorker},
		{name: "cut worker off NATS", do: cutWorker},
		{name: "reshard", do: reshard},
		{name: "route gains or loses workers", do: distribute},
		{name: "kill leader and worker", loses: true, do: killBoth},
	}
}

// burden makes the sinks of the workers unavailable, half of the time, until these have messages in
// hand. The function that it returns ends that.
func (w *world) burden() (relieve func()) {
	down := w.random.IntN(2) == 0
	for _, sink := range []string{"every", "keyed", "latest"} {
		w.receiver.Down(sink, down)
	}
	w.flow(w.some(1, 40))
	return func() {
		for _, sink := range []string{"every", "keyed", "latest"} {
			w.receiver.Down(sink, false)
		}
	}
}

// killWorker starts the worker again at once, or after others have its partitions.
func killWorker(w *world) allowance {
	n, relieve := w.worker(), w.burden()
	n.Kill()
	w.flow(w.some(1, 20))
	relieve()
	if w.random.IntN(2) == 0 {
		w.drained()
	}
	must.Succeed(w.t, n.Launch())
	return allowance{workers: 1}
}

// drained waits until the route every has delivered what the route local has: all partitions have
// an owner.
func (w *world) drained() {
	w.t.Helper()
	want := len(w.receiver.Of("local"))
	w.wait("the deliveries of the workers", func() error {
		if got := len(w.receiver.Of("every")); got < want {
			return fmt.Errorf("%d deliveries, want %d", got, want)
		}
		return nil
	})
}

// pauseWorker pauses a worker for a moment, or until others have its partitions.
func pauseWorker(w *world) allowance {
	n, relieve := w.worker(), w.burden()
	n.Pause()
	w.flow(w.some(1, 20))
	relieve()
	if w.random.IntN(2) == 0 {
		w.drained()
	} else {
		w.pause(3 * time.Second)
	}
	n.Continue()
	w.flow(1)
	return allowance{workers: 1}
}

func restartWorker(w *world) allowance {
	w.flow(w.some(1, 20))
	w.restart(w.worker())
	w.flow(20)
	return allowance{}
}

func cutWorker(w *world) allowance {
	n, relieve := w.worker(), w.burden()
	heal := w.cut(n)
	w.flow(w.some(1, 20))
	relieve()
	if w.random.IntN(2) == 0 {
		w.drained()
	} else {
		w.flow(20)
	}
	heal()
	return allowance{workers: 1}
}

// reshard changes the number of partitions of the route every.
func reshard(w *world) allowance {
	w.flow(w.some(1, 20))
	w.settings.partitions = 1 + (w.settings.partitions+w.some(0, 4))%6 // another number
	w.reconfigure()
	w.flow(w.some(20, 60))
	return allowance{}
}

// distribute moves the route keyed from the leader to the workers, or back.
func distribute(w *world) allowance {
	w.flow(w.some(1, 20))
	w.settings.gathered = !w.settings.gathered
	w.reconfigure()
	w.flow(w.some(20, 60))
	return allowance{}
}

func killBoth(w *world) allowance {
	leader, n := w.leader(), w.worker()
	w.flow(w.some(1, 20))
	n.Kill()
	leader.Kill()
	w.follower(leader)
	must.Succeed(w.t, leader.Launch())
	must.Succeed(w.t, n.Launch())
	return allowance{leaders: 1, workers: 1}
}
