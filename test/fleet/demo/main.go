// The program demo shows the failures of a fleet: it starts three NATS servers, two members and
// three workers on a sandbox cluster, ends them one after another while objects change, and prints
// for each step who leads, how long the slowest change took, and whether something was lost or came
// twice. It changes nothing outside of a temporary folder, and ends all that it has started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func main() {
	router := flag.String("router", "bin/router", "binary of the router")
	keep := flag.Bool("keep", false, "keep the temporary folder with states and logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *router, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// introduction says what the account is about.
const introduction = `
Objects change all the time, up to 200 times a second. Each change is delivered on two routes: work
has workers, so the workers deliver it; local has none, so the leader does. Each step ends or stops a
process, waits until all changes are delivered, and prints who delivered them, how many were lost or
came again, and the longest time from a change to its delivery. After the loss of a process, those
come again whose delivery it could not record any more. All steps take two minutes.
`

const (
	members, workers = 2, 3
	namespace        = "default"
)

const config = `sources: {maps: {resource: v1/configmaps, namespaces: default}}
sinks:
  work: {webhook: {url: "http://receiver.test/work"}}
  local: {webhook: {url: "http://receiver.test/local"}}
define: {plain: object.metadata.name.startsWith("o-")}
routes:
  - {name: work, from: maps, filter: plain, deliver: every, to: work, batch: {wait: 1ms}, workers: {partitions: 8, pending: 16}}
  - {name: local, from: maps, filter: plain, deliver: every, to: local, batch: {wait: 1ms}}
`

// demo is the running demonstration.
type demo struct {
	out      io.Writer
	dir      string
	sandbox  *sandboxtest.Sandbox
	nats     *natstest.Cluster
	receiver *fleet.Receiver
	fleet    *fleet.Fleet
	maps     dynamic.ResourceInterface
	steps    int
	failed   bool
}

func run(ctx context.Context, out io.Writer, router string, keep bool) (err error) {
	d := &demo{out: out}
	if d.dir, err = os.MkdirTemp("", "fleet-"); err != nil {
		return err
	}
	defer func() {
		d.close()
		if keep || err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "\nThe states and logs are in %s\n", d.dir)
			return
		}
		_ = os.RemoveAll(d.dir)
	}()
	router, err = filepath.Abs(router)
	if err != nil {
		return err
	}
	if err := d.start(ctx, router); err != nil {
		return err
	}
	fmt.Fprint(out, introduction)
	for _, s := range steps() {
		if err := d.step(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	if d.failed {
		return errors.New("a step lost something, or repeated more than it may")
	}
	fmt.Fprintln(out, "\nNothing was lost, and the order of each object was kept.")
	if !keep {
		fmt.Fprintln(out, "To keep the states and the logs of all processes: go run ./test/fleet/demo -keep")
	}
	return nil
}

func (d *demo) start(ctx context.Context, router string) (err error) {
	fmt.Fprintln(d.out, "Starting an API server, three NATS servers, two members and three workers …")
	if d.sandbox, err = sandboxtest.Launch(filepath.Join(d.dir, "cluster"), sandboxtest.Options{}); err != nil {
		return err
	}
	if d.nats, err = natstest.Launch(filepath.Join(d.dir, "nats"), natstest.Config{Servers: 3}); err != nil {
		return err
	}
	d.receiver = fleet.NewReceiver()
	d.maps = d.sandbox.Dynamic().Resource(routertest.ConfigMaps).Namespace(namespace)
	d.fleet, err = fleet.New(fleet.Options{
		Router: router, Dir: d.dir, Name: "demo", Namespace: namespace, Members: members, Workers: workers, NATS: d.nats.URLs(),
		Kubeconfig: d.sandbox.Kubeconfig(), Receiver: d.receiver.Addr(),
	}, config)
	if err != nil {
		return err
	}
	if err := d.fleet.Start(); err != nil {
		return err
	}
	_, err = d.leader(ctx)
	return err
}

func (d *demo) close() {
	if d.fleet != nil {
		d.fleet.Close()
	}
	if d.receiver != nil {
		d.receiver.Close()
	}
	if d.nats != nil {
		d.nats.Close()
	}
	if d.sandbox != nil {
		d.sandbox.Close()
	}
}

// wait waits until a condition holds.
func (d *demo) wait(ctx context.Context, what string, problem func() error) error {
	const patience, poll = 2 * time.Minute, 25 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return nil
		}
		for _, n := range d.fleet.Nodes() {
			if n.Crashed() {
				return fmt.Errorf("%s ended with code %d:\n%s", n.Name, n.Code(), n.Tail())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		}
	}
}

func (d *demo) leader(ctx context.Context) (leader *fleet.Node, err error) {
	err = d.wait(ctx, "a leader", func() (err error) {
		leader, err = d.fleet.Leader(ctx, d.sandbox.Dynamic())
		return err
	})
	return leader, err
}

// standby returns the other member, after it has the state of the leader.
func (d *demo) standby(ctx context.Context) (standby *fleet.Node, err error) {
	leader, err := d.leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range d.fleet.Members {
		if n != leader {
			return n, d.wait(ctx, n.Name, func() error { return fleet.Follows(n) })
		}
	}
	return nil, errors.New("there is no standby")
}
