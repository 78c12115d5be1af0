package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// alter changes the settings of a stream, as an operator does.
func (c *crew) alter(stream string, change func(*jetstream.StreamConfig)) {
	c.t.Helper()
	have, err := c.js.Stream(c.t.Context(), stream)
	must.Succeed(c.t, err)
	config := have.CachedInfo().Config
	change(&config)
	_, err = c.js.UpdateStream(c.t.Context(), config)
	must.Succeed(c.t, err)
}

// status waits until router status of a process has all texts.
func (c *crew) status(n *fleet.Node, texts ...string) {
	c.t.Helper()
	c.wait("the status of "+n.Name, func() error {
		out, _ := n.Control("status") // it fails if the process is not ready
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%q is not in %s", text, out)
			}
		}
		return nil
	})
}

// well waits until the leader finds no fault any more, and a new change passes all routes.
func (c *crew) well() {
	c.t.Helper()
	c.change(3)
	c.delivered("near", "far")
	c.wait("the end of the fault", func() error {
		_, body := c.leader().Get("/readyz")
		if n := c.leader().Metric("deltarouter_fleet_nats_problems"); n > 0 || strings.Contains(body, "[-]") {
			return fmt.Errorf("%v problems: %s", n, body)
		}
		return nil
	})
}

// TestWorkerStatus: a worker shows its partitions, the deltas in hand and the members, and refuses
// what only the leader can answer.
func TestWorkerStatus(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 1, natstest.Config{}, nil)
	c.receiver.Down("far", true)
	c.change(5)
	c.wait("the metrics of the worker", func() error {
		owned, inHand := c.worker().Metric(`deltarouter_fleet_partitions{route="far"}`), c.worker().Metric(`deltarouter_route_queue_deltas{route="far"}`)
		if owned != 2 || inHand != 5 {
			return fmt.Errorf("%v partitions, %v deltas", owned, inHand)
		}
		return nil
	})
	c.status(c.worker(), "far    5        -          0        0", "far    2           5", " leader ", " worker ")
	if out, err := c.worker().Control("resync", "-route", "far"); err == nil || !strings.Contains(out, "this process is a worker of the fleet: ask the leader") {
		t.Errorf("%v: %s", err, out)
	}
	c.receiver.Down("far", false)
	c.delivered("far")
}

// TestAlteredStreams alters, empties and deletes the streams of a fleet that works. The leader says
// what is wrong, the route without workers goes on, and the deltas of the other one wait on the
// disk of the leader; nothing is lost except what the stream had, and all is well when the streams
// are.
func TestAlteredStreams(t *testing.T) {
	// Guarantee: fleet-streams-altered
	t.Parallel()
	c := newCrew(t, 1, natstest.Config{}, nil)
	const work, cuts, own, members, values, letters = "DR_test_WORK", "DR_test_CUTS", "KV_dr_test_own", "KV_dr_test_members", "KV_dr_test_kv", "DR_test_DLQ"
	faulty := func(fault func(*jetstream.StreamConfig), why string) {
		t.Helper()
		var before jetstream.StreamConfig
		c.alter(work, func(s *jetstream.StreamConfig) { before = *s; fault(s) })
		c.status(c.leader(), "fleet/nats: stream "+work+why)
		c.change(5)
		c.delivered("near")
		c.status(c.leader(), "sinks/fleet/workers: unavailable since ", work)
		c.alter(work, func(s *jetstream.StreamConfig) { *s = before })
		c.well()
	}
	faulty(func(s *jetstream.StreamConfig) { s.MaxMsgs = 2 }, " is full: it has ")
	faulty(func(s *jetstream.StreamConfig) { s.Subjects = []string{"other"} }, ": subjects is [other] in place of [dr.test.w.>]")
	faulty(func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardOld }, ": discard is DiscardOld in place of DiscardNew")

	for _, stream := range []string{work, cuts, own, members, values, letters, "OBJ_dr_test_snap"} {
		c.delivered("far") // nothing of it is in the stream
		must.Succeed(t, c.js.DeleteStream(t.Context(), stream))
		c.wait("stream "+stream, func() error {
			_, err := c.js.Stream(t.Context(), stream)
			return err
		})
		c.well()
	}
	for _, stream := range []string{work, cuts, own} {
		c.delivered("far")
		s, err := c.js.Stream(t.Context(), stream)
		must.Succeed(t, err)
		must.Succeed(t, s.Purge(t.Context()))
		c.well()
	}
	const lost = "the deltas that waited there are lost"
	before := c.leader().Count(lost)
	s, err := c.js.Stream(t.Context(), work)
	must.Succeed(t, err)
	must.Succeed(t, s.Purge(t.Context(), jetstream.WithPurgeKeep(1))) // the lead record
	c.wait("the message about the purge", func() error {
		if n := c.leader().Count(lost); n == before {
			return fmt.Errorf("%d lines, as before", n)
		}
		return nil
	})
	c.well()
	must.Succeed(t, errors.Join(c.worker().Terminate(patience), c.worker().Launch()))
	c.ready()
	for _, text := range []string{"made again without its messages", "router resync -route"} {
		if c.leader().Count(text) == 0 {
			t.Errorf("the log of the leader has no %q", text)
		}
	}
}
