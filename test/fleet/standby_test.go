package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	stdmaps "maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// pair is a fleet of members without workers, on one NATS server.
type pair struct {
	t        *testing.T
	fleet    *fleet.Fleet
	receiver *fleet.Receiver
	nats     *natstest.Cluster
	maps     dynamic.ResourceInterface

	config   string
	versions []string // of the changes, in their order
}

// standbyConfig has a route for each change, one by one, and a route with a condition and a limit.
const standbyConfig = `sources: {maps: {resource: v1/configmaps, namespaces: %s}}
sinks: {each: {webhook: {url: "%seach"}}, held: {webhook: {url: "%sheld"}}}
routes:
  - {name: each, from: maps, filter: object.metadata.name == "n", deliver: every, batch: {size: 1, wait: 1ms}, retry: {backoff: 10ms, max: 50ms}, to: each}
  - name: held
    from: maps
    when: object.metadata.name.startsWith("c-") && object.data.value == "bad"
    limit: {key: '"all"', every: 1h, burst: 2}
    to: held
`

// newPair starts members with empty state folders.
func newPair(t *testing.T, members int) *pair {
	t.Helper()
	s, ns := sandboxtest.StartNamespace(t)
	p := &pair{t: t, nats: natstest.Start(t, natstest.Config{}), receiver: fleet.NewReceiver(), maps: s.Dynamic().Resource(routertest.ConfigMaps).Namespace(ns)}
	t.Cleanup(p.receiver.Close)
	p.config = fmt.Sprintf(standbyConfig, ns, fleet.ReceiverURL, fleet.ReceiverURL)
	var err error
	p.fleet, err = fleet.New(fleet.Options{
		Router: routertest.Command().Path, Dir: t.TempDir(), Name: "test", Namespace: ns, Members: members, NATS: p.nats.URLs(),
		Kubeconfig: s.Kubeconfig(), Receiver: p.receiver.Addr(),
	}, p.config)
	must.Succeed(t, err)
	t.Cleanup(func() {
		p.fleet.Close()
		if t.Failed() {
			for _, n := range p.fleet.Nodes() {
				t.Log(n.Tail())
			}
		}
	})
	return p
}

// wait waits until problem returns nil.
func (p *pair) wait(what string, problem func() error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("waited in vain for %s: %v", what, err)
		}
	}
}

// role returns an error unless a node has a role and is ready.
func role(n *fleet.Node, want string) error {
	if code, body := n.Get("/readyz"); code != 200 || !strings.HasPrefix(body, want) {
		return fmt.Errorf("%s: %d %s", n.Name, code, body)
	}
	return nil
}

// roles waits until one of the nodes leads and the others are standbys that follow it.
func (p *pair) roles(nodes ...*fleet.Node) (leader *fleet.Node, standbys []*fleet.Node) {
	p.t.Helper()
	p.wait("one leader, and standbys that follow", func() error {
		leader, standbys = nil, nil
		for _, n := range nodes {
			switch {
			case role(n, "leader") == nil:
				leader = n
			case role(n, "standby, ") == nil && n.Metric("deltarouter_fleet_behind_seconds") < 5:
				standbys = append(standbys, n)
			}
		}
		if leader == nil || len(standbys) != len(nodes)-1 {
			return errors.New("not yet")
		}
		return nil
	})
	return leader, standbys
}

// change changes the object of the route each.
func (p *pair) change() {
	p.t.Helper()
	if len(p.versions) == 0 {
		o, err := p.maps.Create(p.t.Context(), routertest.ConfigMap("n", "0"), metav1.CreateOptions{})
		must.Succeed(p.t, err)
		p.versions = append(p.versions, o.GetResourceVersion())
		return
	}
	p.patch("n", fmt.Sprint(len(p.versions)))
}

func (p *pair) patch(name, value string) {
	p.t.Helper()
	o, err := p.maps.Patch(p.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value), metav1.PatchOptions{})
	must.Succeed(p.t, err)
	if name == "n" {
		p.versions = append(p.versions, o.GetResourceVersion())
	}
}

// delivered waits until all changes are delivered, and returns the number of deliveries beyond
// them. Their order is checked without what comes again.
func (p *pair) delivered() (again int) {
	p.t.Helper()
	var first []string
	p.wait("the deliveries", func() error {
		first, again = nil, 0
		for _, d := range p.receiver.Of("each") {
			if slices.Contains(first, d.Version) {
				again++
			} else {
				first = append(first, d.Version)
			}
		}
		if len(first) < len(p.versions) {
			return fmt.Errorf("%d of %d", len(first), len(p.versions))
		}
		return nil
	})
	if !slices.Equal(first, p.versions) {
		p.t.Errorf("the order of the deliveries is %q, want %q", first, p.versions)
	}
	return again
}

// notAgain waits until all changes are delivered, and checks that nothing came again beside what
// did before. On a machine that is too busy to renew a Lease in time, a leader was deposed: then it
// may.
func (p *pair) notAgain(when string, before int) (again int) {
	p.t.Helper()
	again = p.delivered()
	deposed := slices.ContainsFunc(p.fleet.Members, func(n *fleet.Node) bool { return strings.Contains(n.Log(), deposition) })
	if again != before && !deposed {
		p.t.Errorf("%d duplicates %s", again-before, when)
	}
	return again
}

// deposition is in the log of a leader that was deposed.
const deposition = "this member was deposed"

// reports waits until the route held has exactly these reports.
func (p *pair) reports(want ...string) {
	p.t.Helper()
	p.wait("the reports of the condition", func() error {
		var got []string
		for _, d := range p.receiver.Of("held") {
			got = append(got, d.Op)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// shipped waits until a standby has everything that the leader has taken so far.
func (p *pair) shipped(leader, standby *fleet.Node) {
	p.t.Helper()
	for range 2 { // the cut that runs may have begun before
		last := leader.Metric("deltarouter_checkpoint_age_seconds")
		p.wait("a cut", func() error {
			age := leader.Metric("deltarouter_checkpoint_age_seconds")
			younger := age < last
			if last = age; !younger {
				return fmt.Errorf("the last one is %vs old", age)
			}
			return nil
		})
	}
	last := leader.Metric("deltarouter_fleet_published_bytes_total")
	p.wait("the frames", func() error {
		if frames := leader.Metric("deltarouter_fleet_frames_behind") + standby.Metric("deltarouter_fleet_frames_behind"); frames > 0 {
			return fmt.Errorf("%v frames are missing, %v bytes are published", frames, last)
		}
		return nil
	})
}

// TestStandby: of two members with empty folders one leads, and the other one follows it. Both show
// the same members. The standby answers from its state and says so; it names the leader for
// changes.
func TestStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2)
	must.Succeed(t, p.fleet.Start())
	leader, standbys := p.roles(p.fleet.Members...)
	standby := standbys[0]
	for _, n := range []*fleet.Node{leader, standby} {
		p.wait("the members in router status", func() error {
			out, err := n.Control("status")
			if err != nil || !strings.Contains(out, leader.Name+"-") || !strings.Contains(out, standby.Name+"-") || strings.Count(out, " leader ")+strings.Count(out, " standby ") != 2 {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if out, err := standby.Control("dlq", "retry", "1"); err == nil || !strings.Contains(out, "is a standby of fleet \"test\": ask the leader, "+leader.Name+"-") {
		t.Errorf("%v: %s", err, out)
	}
	p.answers(leader, standby)
	p.follows(standby)
	if leader.Metric("deltarouter_fleet_leader") != 1 || standby.Metric("deltarouter_fleet_leader") != 0 {
		t.Error("the metrics show other roles")
	}
}

// answers: the standby shows the objects and the dead letters of its state, and how old that is.
func (p *pair) answers(leader, standby *fleet.Node) {
	p.t.Helper()
	p.change()
	p.delivered()
	p.shipped(leader, standby)
	for _, command := range []struct{ args, want string }{
		{"get maps", "n "}, {"get maps n -o name", "/n\n"}, {"get", "maps"}, {"dlq list", "no dead letters"},
	} {
		out, err := standby.Control(strings.Fields(command.args)...)
		if err != nil || !strings.Contains(out, command.want) || !strings.Contains(out, "standby; ") || !strings.Contains(out, " s behind the leader, "+leader.Name+"-") {
			p.t.Errorf("%s: %v: %s", command.args, err, out)
		}
		if out, err := leader.Control(strings.Fields(command.args)...); err != nil || strings.Contains(out, "standby; ") {
			p.t.Errorf("%s at the leader: %v: %s", command.args, err, out)
		}
	}
	if out, err := standby.Control("get", "maps", "-w"); err == nil || !strings.Contains(out, "ask the leader") {
		p.t.Errorf("%v: %s", err, out)
	}
}

// follows: the hash of the configuration of a standby in the list of members is that of its file.
func (p *pair) follows(standby *fleet.Node) {
	p.t.Helper()
	hashes := func() map[string]bool {
		all := make(map[string]bool)
		var status struct {
			Fleet struct{ Members []struct{ Config string } }
		}
		if out, err := standby.Control("status", "-o", "json"); err == nil && json.Unmarshal([]byte(out), &status) == nil {
			for _, m := range status.Fleet.Members {
				all[m.Config] = true
			}
		}
		return all
	}
	before := hashes()
	must.Succeed(p.t, p.fleet.Configure(p.config+"  - {name: another, from: maps, to: each, filter: \"false\"}\n"))
	p.wait("the new hash of both members", func() error {
		if now := hashes(); len(now) != 1 || stdmaps.Equal(now, before) {
			return fmt.Errorf("before %v, now %v", before, now)
		}
		return nil
	})
}

// TestTakeover: a leader is killed, stopped, demoted, and paused for longer than its Lease, with an
// empty folder in between, and without NATS for a while. The next leader goes on: nothing is lost,
// nothing comes again after a clean end, and conditions and limits are exact.
func TestTakeover(t *testing.T) {
	// Guarantee: fleet-takeover, fleet-no-late-delivery, fleet-able-to-lead
	t.Parallel()
	p := newPair(t, 3)
	one, two, three := p.fleet.Members[0], p.fleet.Members[1], p.fleet.Members[2]
	must.Succeed(t, one.Launch())
	must.Succeed(t, two.Launch())
	leader, standbys := p.roles(one, two)
	for _, name := range []string{"c-1", "c-2", "c-3"} {
		_, err := p.maps.Create(t.Context(), routertest.ConfigMap(name, "good"), metav1.CreateOptions{})
		must.Succeed(t, err)
	}
	p.change()
	p.patch("c-1", "bad")
	p.delivered()
	p.reports("entered")
	p.shipped(leader, standbys[0])

	// killed: the last cut may come again, and the condition is known
	leader.Kill()
	killed := time.Now()
	p.change()
	p.patch("c-1", "good")
	again := p.delivered()
	t.Logf("the takeover after SIGKILL took %s, with %d duplicates", time.Since(killed).Round(10*time.Millisecond), again)
	p.reports("entered", "left")

	// a new member with an empty folder in place of the killed one
	must.Succeed(t, leader.Forget())
	must.Succeed(t, leader.Launch())
	p.roles(one, two)
	p.change()
	again = p.notAgain("with a new standby", again)

	// a third member, and a clean end: the limit has counted one event
	must.Succeed(t, three.Launch())
	leader, _ = p.roles(one, two, three)
	p.patch("c-2", "bad")
	p.reports("entered", "left", "entered")
	stopped := time.Now()
	must.Succeed(t, leader.Terminate(patience))
	p.change()
	again = p.notAgain("after a clean stop", again)
	t.Logf("the takeover after SIGTERM took %s", time.Since(stopped).Round(10*time.Millisecond))
	p.patch("c-3", "bad") // suppressed: the third in an hour
	must.Succeed(t, leader.Launch())

	// router promote
	_, standbys = p.roles(one, two, three)
	promoted := time.Now()
	out, err := standbys[1].Control("promote")
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("router promote took %s", time.Since(promoted).Round(10*time.Millisecond))
	p.wait("the promoted leader", func() error { return role(standbys[1], "leader") })
	p.change()
	p.notAgain("after a promotion", again)

	// without NATS the leader goes on
	_, standbys = p.roles(one, two, three)
	p.nats.Servers[0].Kill()
	p.change()
	p.delivered()
	p.wait("a refusal", func() error {
		if out, err := standbys[0].Control("promote"); err == nil || !strings.Contains(out, "cannot lead: it does not reach NATS") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	must.Succeed(t, p.nats.Servers[0].Restart())
	leader, standbys = p.roles(one, two, three)
	p.shipped(leader, standbys[0])
	p.reports("entered", "left", "entered")
	p.deposed(one, two, three)
}

// deposed pauses a leader for longer than its Lease, while it has deltas that its sink did not
// take. When it continues, it could deliver them at once, and must not.
func (p *pair) deposed(all ...*fleet.Node) {
	p.t.Helper()
	var leader *fleet.Node
	p.receiver.Down("each", true)
	for range 30 {
		p.change()
	}
	p.wait("a leader with a backlog", func() error {
		for _, n := range all { // on a busy machine the Lease may have moved
			if pending := n.Metric(`deltarouter_route_queue_deltas{route="each"}`); pending >= 30 && role(n, "leader") == nil {
				leader = n
				return nil
			}
		}
		return errors.New("not yet")
	})
	leader.Pause()
	p.wait("another leader", func() error {
		for _, n := range all {
			if n != leader && role(n, "leader") == nil {
				return nil
			}
		}
		return errors.New("not yet")
	})
	before := len(p.receiver.Of("each"))
	p.receiver.Down("each", false)
	leader.Continue()
	p.wait("the deposed leader as a standby", func() error { return role(leader, "standby, ") })
	p.roles(all...)
	p.change()
	p.delivered()
	for _, d := range p.receiver.Of("each")[before:] {
		if d.By == leader.Name {
			p.t.Errorf("%s delivered version %s after it was deposed", d.By, d.Version)
		}
	}
	if log := leader.Log(); !strings.Contains(log, deposition) {
		p.t.Errorf("%s does not say that it was deposed", leader.Name)
	}
}
