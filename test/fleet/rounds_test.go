package fleet_test

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
)

// allowance is what a disturbance excuses.
type allowance struct {
	leaders int // leaders that were killed: deltas since the last cut come again
	workers int // workers that were lost: their unacknowledged messages come again
	leases  int // partitions that a worker lost, as it says in its log, with the same effect
}

// kind is a kind of rounds. do disturbs the fleet while changes go on, and returns when all
// processes run again.
type kind struct {
	name  string
	loses bool // the leader, with what it did since the last cut
	do    func(w *world) allowance
}

// kinds returns the kinds of rounds.
func kinds() []kind {
	all := []kind{
		{name: "kill leader", loses: true, do: killLeader},
		{name: "pause leader", loses: true, do: pauseLeader},
		{name: "restart leader", do: restartLeader},
		{name: "rolling update", do: rollingUpdate},
		{name: "reload", do: reload},
		{name: "sink outage", do: outage},
		{name: "narrowed", do: narrowed},
	}
	if members > 1 {
		all = append(all, []kind{
			{name: "promote standby", do: promote},
			{name: "kill standby", do: killStandby},
			{name: "pause standby", do: pauseStandby},
			{name: "cut standby off NATS", do: cutStandby},
			{name: "cut leader off NATS", do: cutLeader},
			{name: "cut leader off the API server", loses: true, do: cutLease},
			{name: "barren watches", do: barrenWatches},
			{name: "late batch of a dead leader", loses: true, do: lateBatch},
			{name: "kill server", do: killServer},
			{name: "pause server", do: pauseServer},
			{name: "no quorum", do: noQuorum},
		}...)
	}
	if workers > 0 {
		all = append(all, workerKinds()...)
	}
	return all
}

func (w *world) some(least, most int) int { return least + w.random.IntN(most-least+1) }

// pause waits for a random time, at most the given one.
func (w *world) pause(most time.Duration) { <-time.After(time.Duration(w.random.Int64N(int64(most)))) }

func killLeader(w *world) allowance {
	leader := w.leader()
	w.flow(w.some(1, 20))
	leader.Kill()
	if members > 1 && w.random.IntN(3) > 0 { // else it is back before its Lease ends
		w.follower(leader)
	}
	must.Succeed(w.t, leader.Launch())
	w.leader()
	return allowance{leaders: 1}
}

// pauseLeader pauses the leader, with a standby until that leads.
func pauseLeader(w *world) allowance {
	leader := w.leader()
	w.flow(w.some(1, 20))
	leader.Pause()
	if members > 1 && w.random.IntN(3) > 0 {
		w.follower(leader)
	} else {
		w.pause(time.Second)
	}
	leader.Continue()
	w.flow(1)
	if members > 1 {
		w.standby()
	}
	return allowance{}
}

func restartLeader(w *world) allowance {
	w.flow(w.some(1, 20))
	w.restart(w.leader())
	w.leader()
	return allowance{}
}

// rollingUpdate replaces all processes one after another, as an update of the chart does: the
// workers, the standby, and then the leader. Nothing comes again.
func rollingUpdate(w *world) allowance {
	for _, n := range w.fleet.Workers {
		w.flow(w.some(1, 20))
		w.restart(n)
		w.wait("the worker", n.Ready)
	}
	if members > 1 {
		w.flow(w.some(1, 20))
		n := w.standby()
		w.restart(n)
		w.follows(n)
	}
	return restartLeader(w)
}

func promote(w *world) allowance {
	former, next := w.leader(), w.standby()
	w.flow(w.some(1, 20))
	out, err := next.Control("promote")
	if err != nil {
		w.t.Errorf("router promote: %v\n%s", err, out)
	}
	if w.follower(former) != next {
		w.t.Errorf("%s was to be promoted", next.Name)
	}
	return allowance{}
}

// killStandby also removes its state folder, sometimes.
func killStandby(w *world) allowance {
	n := w.standby()
	n.Kill()
	w.flow(w.some(1, 20))
	if w.random.IntN(2) == 0 {
		must.Succeed(w.t, n.Forget())
	}
	must.Succeed(w.t, n.Launch())
	w.follows(n)
	return allowance{}
}

func pauseStandby(w *world) allowance {
	n := w.standby()
	n.Pause()
	w.flow(w.some(20, 60))
	n.Continue()
	w.follows(n)
	return allowance{}
}

// restart ends a process with SIGTERM, and starts it again.
func (w *world) restart(n *fleet.Node) {
	w.t.Helper()
	must.Succeed(w.t, n.Terminate(patience))
	if code := n.Code(); code != 0 {
		w.t.Errorf("%s ended with code %d", n.Name, code)
	}
	must.Succeed(w.t, n.Launch())
}

// reload changes the route every.
func reload(w *world) allowance {
	w.flow(w.some(1, 20))
	w.settings.backoff++
	w.reconfigure()
	w.flow(20)
	return allowance{}
}

// narrowed takes the object with a condition away from the routes, and gives it back: its condition
// ends, and begins again.
func narrowed(w *world) allowance {
	w.reported(w.rules, w.rules.told...)
	for _, report := range []string{"left", "entered"} {
		w.flow(w.some(1, 20))
		w.settings.narrow = report == "left"
		w.reconfigure()
		w.rules.told = append(w.rules.told, report)
		w.reported(w.rules, w.rules.told...)
	}
	return allowance{}
}

// reconfigure replaces the configuration, and waits until the leader has accepted it. Some
// processes also get a signal; the others notice it by themselves, sooner or later.
func (w *world) reconfigure() {
	w.t.Helper()
	const accepted = `"msg":"reloaded"`
	leader := w.leader()
	before := strings.Count(leader.Log(), accepted)
	must.Succeed(w.t, w.fleet.Configure(w.settings.config()))
	for _, n := range w.fleet.Nodes() {
		if w.random.IntN(2) == 0 {
			n.Signal(syscall.SIGHUP)
		}
	}
	w.wait("the reload", func() error {
		if log := leader.Log(); strings.Count(log, accepted) == before {
			return errors.New(log[max(0, len(log)-1000):])
		}
		return nil
	})
}

func outage(w *world) allowance {
	sinks := []string{"every", "latest", "keyed", "rules"}
	down := sinks[w.random.IntN(len(sinks))]
	w.receiver.Down(down, true)
	w.flow(w.some(20, 60))
	w.receiver.Down(down, false)
	return allowance{}
}
