package fleet_test

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// cut cuts a process off NATS: its connections are reset once, or with what has been on its way for
// a moment, or no byte passes, or no connection is possible. The function that it returns ends
// that.
func (w *world) cut(n *fleet.Node) (heal func()) {
	how := w.random.IntN(4)
	proxies := w.ways[n.Name].nats
	if how == 3 {
		for _, p := range proxies {
			p.Block()
		}
		w.flow(w.some(1, 40))
	}
	for _, p := range proxies {
		switch how {
		case 0:
			p.Cut()
		case 1:
			p.Block()
		case 2:
			p.Refuse()
		default:
			p.Cut()
			p.Unblock()
		}
	}
	return func() {
		for _, p := range proxies {
			p.Unblock()
		}
	}
}

func cutStandby(w *world) allowance {
	n := w.standby()
	heal := w.cut(n)
	w.flow(w.some(20, 60))
	heal()
	w.follows(n)
	return allowance{}
}

// cutLeader cuts the leader off NATS. It stays the leader, because the Lease is in the API server.
func cutLeader(w *world) allowance {
	leader := w.leader()
	w.flow(1)
	heal := w.cut(leader)
	w.flow(w.some(20, 60))
	heal()
	w.standby()
	return allowance{}
}

// cutLease cuts the leader off the API server until a standby leads.
func cutLease(w *world) allowance {
	leader := w.leader()
	way := w.ways[leader.Name].api
	w.flow(w.some(1, 20))
	if w.random.IntN(2) == 0 {
		way.Block()
	} else {
		way.Refuse()
	}
	w.follower(leader)
	way.Unblock()
	w.standby()
	return allowance{}
}

// barrenWatches ends the watches of the members, and the next ones are opened and bring nothing:
// one while changes go on, after which the watch goes on where it was, and then all until a list
// has brought the changes that were made meanwhile. A list has only the last state of each object,
// so that is one change of each writer.
func barrenWatches(w *world) allowance {
	w.flow(w.some(1, 20))
	answer := w.random.IntN(len(sandboxtest.Barren))
	w.dry(1, answer)
	w.flow(w.some(1, 20))
	w.changes.Hold(w.t.Context(), func(each func() error) {
		w.settled(w.changes.History)
		stalled := []string{`deltarouter_source_relists_total{reason="stalled",source="maps"}`, `deltarouter_source_relists_total{reason="stalled",source="scoped"}`}
		before := w.sums(stalled)
		w.held(func() {
			w.dry(-1, answer)
			must.Succeed(w.t, each())
		}, w.fleet.Members)
		w.settled(w.changes.History)
		w.wait("a list of each source, because each stream is barren: "+sandboxtest.Barren[answer].Name, func() error {
			for i, now := range w.sums(stalled) {
				if now <= before[i] {
					return fmt.Errorf("%s is %v, as before", stalled[i], now)
				}
			}
			return nil
		})
		for _, n := range w.fleet.Members {
			w.ways[n.Name].watches.Dry(w.settings.namespace, 0, 0)
		}
	})
	w.flow(20)
	w.standby()
	return allowance{}
}

// dry ends the watches of the members, and makes the next streams of each barren.
func (w *world) dry(streams, answer int) {
	for _, n := range w.fleet.Members { // on a busy machine another one may lead soon
		w.ways[n.Name].watches.Dry(w.settings.namespace, streams, answer)
		w.ways[n.Name].api.Cut()
	}
}

// held runs do while no watch of these processes opens.
func (w *world) held(do func(), nodes []*fleet.Node) {
	if len(nodes) == 0 {
		do()
		return
	}
	w.ways[nodes[0].Name].watches.Hold(func() { w.held(do, nodes[1:]) })
}

// sums returns the sums of metrics over the members.
func (w *world) sums(series []string) (sums []float64) {
	for _, s := range series {
		sum := 0.0
		for _, n := range w.fleet.Members {
			sum += n.Metric(s)
		}
		sums = append(sums, sum)
	}
	return sums
}

// lateBatch kills the leader while what it has published is on its way to NATS. It arrives when
// another member leads.
func lateBatch(w *world) allowance {
	leader := w.leader()
	proxies := w.ways[leader.Name].nats
	w.flow(w.some(1, 20))
	for _, p := range proxies {
		p.Block()
	}
	w.flow(w.some(20, 60))
	leader.Kill()
	w.follower(leader)
	for _, p := range proxies {
		p.Unblock()
	}
	w.flow(20)
	must.Succeed(w.t, leader.Launch())
	return allowance{leaders: 1}
}

// server returns one of the NATS servers.
func (w *world) server() *natstest.Server { return w.nats.Servers[w.random.IntN(len(w.nats.Servers))] }

func killServer(w *world) allowance {
	s := w.server()
	s.Kill()
	w.flow(w.some(20, 60))
	must.Succeed(w.t, s.Restart())
	w.nats.WaitReady(w.t)
	return allowance{}
}

func pauseServer(w *world) allowance {
	s := w.server()
	s.Pause()
	w.flow(w.some(20, 60))
	w.pause(3 * time.Second)
	s.Continue()
	w.nats.WaitReady(w.t)
	return allowance{}
}

// noQuorum kills two of the three servers. The routes without workers go on.
func noQuorum(w *world) allowance {
	w.flow(1)
	one := w.random.IntN(3)
	two := (one + 1 + w.random.IntN(2)) % 3
	w.nats.Servers[one].Kill()
	w.nats.Servers[two].Kill()
	w.flow(w.some(20, 60))
	must.Succeed(w.t, w.nats.Servers[one].Restart())
	must.Succeed(w.t, w.nats.Servers[two].Restart())
	w.nats.WaitReady(w.t)
	return allowance{}
}
