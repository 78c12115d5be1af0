package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// crew is a fleet of one member, or a leader and a standby, and one worker, whose NATS has faults.
type crew struct {
	t        *testing.T
	fleet    *fleet.Fleet
	receiver *fleet.Receiver
	nats     *natstest.Cluster
	js       jetstream.JetStream
	maps     dynamic.ResourceInterface
	config   string
	made     []string // names of the objects
}

// crewConfig has a route that the leader handles, one for workers, and one for workers whose sink
// rejects all events.
const crewConfig = `sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {near: {webhook: {url: "%snear"}}, far: {webhook: {url: "%sfar"}}}
routes:
  - {name: near, from: maps, filter: object.metadata.name.startsWith("n-"), deliver: every, batch: {wait: 1ms}, to: near}
  - {name: far, from: maps, filter: object.metadata.name.startsWith("n-"), deliver: every, batch: {wait: 1ms}, to: far, workers: {partitions: 2}}
`

// newCrew starts a fleet. change may modify its options.
func newCrew(t *testing.T, members int, servers natstest.Config, change func(*crew, *fleet.Options)) *crew {
	t.Helper()
	c := prepareCrew(t, members, servers, change)
	must.Succeed(t, c.fleet.Start())
	c.ready()
	return c
}

// prepareCrew returns a fleet that is not started.
func prepareCrew(t *testing.T, members int, servers natstest.Config, change func(*crew, *fleet.Options)) *crew {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	c := &crew{t: t, nats: natstest.Start(t, servers), receiver: fleet.NewReceiver(), maps: s.Dynamic().Resource(routertest.ConfigMaps).Namespace(ns)}
	t.Cleanup(c.receiver.Close)
	_, c.js = c.nats.Connect(t)
	o := fleet.Options{
		Router: binary(), Dir: t.TempDir(), Name: fleetName, Namespace: ns, Members: members, Workers: 1, NATS: c.nats.URLs(),
		Kubeconfig: s.Kubeconfig(), Receiver: c.receiver.Addr(),
		Lease: "30s", // a busy machine may not answer in the time of a short one, and without NATS no other member leads
	}
	if change != nil {
		change(c, &o)
	}
	c.config = fmt.Sprintf(crewConfig, ns, fleet.ReceiverURL, fleet.ReceiverURL)
	var err error
	c.fleet, err = fleet.New(o, c.config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		c.fleet.Close()
		if t.Failed() {
			for _, n := range c.fleet.Nodes() {
				t.Log(n.Tail())
			}
		}
	})
	return c
}

// leader returns the only member, or waits until one of several leads.
func (c *crew) leader() (leader *fleet.Node) {
	c.t.Helper()
	if len(c.fleet.Members) == 1 {
		return c.fleet.Members[0]
	}
	c.wait("a leader", func() error {
		for _, leader = range c.fleet.Members {
			if leader.Metric("deltarouter_fleet_leader") == 1 {
				return nil
			}
		}
		return errors.New("no member leads")
	})
	return leader
}

func (c *crew) worker() *fleet.Node { return c.fleet.Workers[0] }

// wait waits until problem returns nil.
func (c *crew) wait(what string, problem func() error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		for _, n := range c.fleet.Nodes() {
			if n.Crashed() {
				c.t.Fatalf("%s ended with code %d", n.Name, n.Code())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}

// ready waits until all processes are ready, and changes pass all routes.
func (c *crew) ready() {
	c.t.Helper()
	c.wait("all processes", func() error {
		for _, n := range c.fleet.Nodes() {
			if code, body := n.Get("/readyz"); code != 200 {
				return fmt.Errorf("%s: %s", n.Name, body)
			}
		}
		return nil
	})
	c.change(3)
	c.delivered("near", "far")
}

// change makes n objects.
func (c *crew) change(n int) {
	c.t.Helper()
	for range n {
		name := fmt.Sprintf("n-%d", len(c.made))
		o, err := c.maps.Create(c.t.Context(), routertest.ConfigMap(name, strings.Repeat(name, 50)), metav1.CreateOptions{})
		must.Succeed(c.t, err)
		c.made = append(c.made, string(o.GetUID()))
	}
}

// missing returns the number of objects that a route has not delivered.
func (c *crew) missing(route string) (n int) {
	found := map[string]bool{}
	for _, d := range c.receiver.Of(route) {
		found[d.UID] = true
	}
	for _, uid := range c.made {
		if !found[uid] {
			n++
		}
	}
	return n
}

// delivered waits until routes have delivered all objects.
func (c *crew) delivered(routes ...string) {
	c.t.Helper()
	for _, route := range routes {
		c.wait("the deliveries of "+route, func() error {
			if n := c.missing(route); n > 0 {
				return fmt.Errorf("%d of %d objects are missing", n, len(c.made))
			}
			return nil
		})
	}
}
