// The program report is the first part of tools/fleet-report.sh: on a sandbox cluster with three
// NATS servers, two members and a worker, it ends the leader again and again while objects change,
// by SIGKILL and by SIGTERM in turns. It prints the time until the other member delivers, the
// duplicates and the losses, and the memory of both members. It ends all that it has started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/natstest"
	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

const (
	namespace = "default"
	workRoute = "work"
	// filling is the size of the objects that only fill the caches.
	filling = 5 << 10
	// creators create them.
	creators = 8
)

// options are the flags of the command.
type options struct {
	router  string
	rounds  int
	routes  int
	writers int
	pace    time.Duration
	load    time.Duration
	objects int
}

func main() {
	var o options
	flag.StringVar(&o.router, "router", "bin/router", "binary of the router")
	flag.IntVar(&o.rounds, "rounds", 3, "how often the leader is killed, and how often it is stopped")
	flag.IntVar(&o.routes, "routes", 4, "routes of the leader that deliver each change; one more is for the worker")
	flag.IntVar(&o.writers, "writers", 16, "goroutines that change objects")
	flag.DurationVar(&o.pace, "pace", 4*time.Millisecond, "pause between two changes of a goroutine, as far as the API server is as fast")
	flag.DurationVar(&o.load, "load", 3*time.Second, "time of changes before each end of the leader, and after it")
	flag.IntVar(&o.objects, "objects", 2_000, "objects of 5 KB that fill the caches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet-report:", err)
		os.Exit(1)
	}
}

// config returns the configuration with that many routes of the leader.
func config(routes int) string {
	var b strings.Builder
	b.WriteString(`sources: {maps: {resource: v1/configmaps, namespaces: default}}
sinks: {out: {webhook: {url: "` + fleet.ReceiverURL + `out"}}}
define: {plain: object.metadata.name.startsWith("o-")}
routes:
`)
	const route = "  - {name: %s, from: maps, filter: plain, deliver: every, to: out, batch: {wait: 1ms}, concurrency: 8%s}\n"
	fmt.Fprintf(&b, route, workRoute, ", workers: {partitions: 8, pending: 64}")
	for _, name := range local(routes) {
		fmt.Fprintf(&b, route, name, "")
	}
	return b.String()
}

// local returns the names of the routes that the leader delivers.
func local(routes int) (names []string) {
	for i := range routes {
		names = append(names, fmt.Sprintf("local-%d", i))
	}
	return names
}

// report is a running fleet.
type report struct {
	options

	dir      string
	sandbox  *sandboxtest.Sandbox
	nats     *natstest.Cluster
	receiver *fleet.Receiver
	fleet    *fleet.Fleet
	maps     dynamic.ResourceInterface
	rounded  int
}

func run(ctx context.Context, o options) (err error) {
	r := &report{options: o}
	if r.router, err = filepath.Abs(o.router); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "fleet-"); err != nil {
		return err
	}
	defer func() { r.close(); _ = os.RemoveAll(r.dir) }()
	if err := r.start(ctx); err != nil {
		return err
	}
	var crashes, stops []outcome
	for i := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, o.rounds)
		for _, way := range []struct {
			all *[]outcome
			end func(*fleet.Node) error
		}{
			{&crashes, func(n *fleet.Node) error { n.Kill(); return nil }},
			{&stops, func(n *fleet.Node) error { return n.Terminate(time.Minute) }},
		} {
			got, err := r.round(ctx, way.end)
			if err != nil {
				return err
			}
			*way.all = append(*way.all, got)
		}
	}
	fmt.Println("\nTime until the other member delivers (lease: 6s), and duplicates of the leader's routes and of the worker's route")
	fmt.Printf(layout, "", "rounds", "deltas/s", "p50", "p99", "longest", "leader's", "worker's", "lost")
	show("the leader is killed", crashes)
	show("the leader is stopped", stops)
	return r.memory(ctx)
}

func (r *report) start(ctx context.Context) (err error) {
	if r.sandbox, err = sandboxtest.Launch(filepath.Join(r.dir, "cluster"), sandboxtest.Options{}); err != nil {
		return err
	}
	if r.nats, err = natstest.Launch(filepath.Join(r.dir, "nats"), natstest.Config{Servers: 3, MaxStore: 8 << 30}); err != nil {
		return err
	}
	r.receiver = fleet.NewReceiver()
	r.maps = r.sandbox.Dynamic().Resource(routertest.ConfigMaps).Namespace(namespace)
	if err := r.fill(ctx); err != nil {
		return err
	}
	r.fleet, err = fleet.New(fleet.Options{
		Router: r.router, Dir: r.dir, Name: "report", Namespace: namespace, Members: 2, Workers: 1, NATS: r.nats.URLs(),
		Kubeconfig: r.sandbox.Kubeconfig(), Receiver: r.receiver.Addr(),
	}, config(r.routes))
	return errors.Join(err, r.fleet.Start())
}

// fill makes the objects that are not delivered.
func (r *report) fill(ctx context.Context) error {
	errs := make(chan error, creators)
	text := strings.Repeat("deltarouter ", filling/12)
	for c := range creators {
		go func() {
			for i := c; i < r.objects; i += creators {
				o := routertest.ConfigMap(fmt.Sprintf("fill-%d", i), "0")
				if err := unstructured.SetNestedField(o.Object, text, "data", "text"); err != nil {
					errs <- err
					return
				}
				if _, err := r.maps.Create(ctx, o, metav1.CreateOptions{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all []error
	for range creators {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (r *report) close() {
	if r.fleet != nil {
		r.fleet.Close()
	}
	if r.receiver != nil {
		r.receiver.Close()
	}
	if r.nats != nil {
		r.nats.Close()
	}
	if r.sandbox != nil {
		r.sandbox.Close()
	}
}
