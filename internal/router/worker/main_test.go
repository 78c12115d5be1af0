package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/pipeline/chain"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = 2 * time.Minute

var pods = &event.Resource{Cluster: "test", Kind: "Pod"}

// receiver is what a sink of all workers gets: subject@resourceVersion.
type receiver struct {
	mu      sync.Mutex
	events  []event.Event
	refuse  func(event.Event) error
	gate    chan struct{} // closed when events are taken; nil: they are
	changed chan struct{} // signalled
}

func (r *receiver) Write(_ context.Context, events []event.Event) []error {
	if r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(events))
	for i, e := range events {
		if r.refuse != nil {
			if errs[i] = r.refuse(e); errs[i] != nil {
				continue
			}
		}
		r.events = append(r.events, e)
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return errs
}

func (*receiver) Close(context.Context) error { return nil }

// until waits until the events satisfy a condition.
func (r *receiver) until(t *testing.T, what string, ok func([]event.Event) bool) {
	t.Helper()
	end := time.After(patience)
	for {
		r.mu.Lock()
		now, n := ok(r.events), len(r.events)
		r.mu.Unlock()
		if now {
			return
		}
		select {
		case <-r.changed:
		case <-end:
			t.Fatalf("%s: not reached with %d events", what, n)
		}
	}
}

// fleetOf is a NATS server, a configuration, and a leader that publishes what a test says.
type fleetOf struct {
	t         testing.TB
	retryOpen time.Duration
	file      string
	receiver  *receiver
	outbox    *work.Outbox
	conn      *fleet.Conn
	kinds     compile.Components
	plan      *compile.Plan
	opening   func() error // called when a sink is opened; nil: not called
}

// configuration has a long lease: a partition whose lease was renewed too late, on a busy machine,
// repeats its deltas, and several tests count them. The lease of a partition is a third of it.
const configuration = `
version: 1
cluster: {name: test}
state: {dir: %q}
fleet:
  name: test
  replicas: 1
  lease: 30s
  nats: {servers: [%q]}
sources:
  pods: {resource: v1/pods}
sinks:
  receiver: {fake: {}}
routes:
  - name: first
    from: [pods]
    to: [receiver]
    retry: {attempts: 1, backoff: 10ms}
    workers: {partitions: %d, pending: 32}
%s`

func newFleet(t *testing.T, partitions int, more string, handlers ...plugins.HandlerKind) *fleetOf {
	t.Helper()
	return fleetWith(t, embedded.Start(t, nil).ClientURL(), partitions, more, handlers...)
}

func fleetWith(t testing.TB, url string, partitions int, more string, handlers ...plugins.HandlerKind) *fleetOf {
	t.Helper()
	f := bare(t, handlers...)
	f.begin(fmt.Sprintf(configuration, t.TempDir(), url, partitions, more))
	return f
}

// bare returns a fleet without a configuration.
func bare(t testing.TB, handlers ...plugins.HandlerKind) *fleetOf {
	f := &fleetOf{t: t, receiver: &receiver{changed: make(chan struct{}, 1)}, file: filepath.Join(t.TempDir(), "config.yaml")}
	f.kinds = compile.Components{Emit: emit.New, Handlers: handlers, Sinks: []plugins.SinkKind{fakekind.Sink{
		Definition: fakekind.Define("fake"),
		OpenFunc: func(context.Context, config.Node, plugins.SinkEnv) (plugins.Sink, error) {
			if f.opening != nil {
				return f.receiver, f.opening()
			}
			return f.receiver, nil
		},
	}}}
	return f
}

// newSigned starts a fleet with fleet.keys; empty: none.
func newSigned(t *testing.T, keys string) *fleetOf {
	t.Helper()
	f := bare(t)
	text := fmt.Sprintf(configuration, t.TempDir(), embedded.Start(t, nil).ClientURL(), 1, "")
	if keys != "" {
		text = strings.Replace(text, "  lease: 30s", "  lease: 30s\n  keys: "+keys, 1)
	}
	f.begin(text)
	return f
}

// begin writes the configuration and runs the leader's part.
func (f *fleetOf) begin(text string) {
	t := f.t
	t.Helper()
	f.write(text)
	plan, err := plan(t.Context(), f.options(), nil)
	must.Succeed(t, err)
	f.plan = plan
	f.lead()
}

func (f *fleetOf) write(text string) {
	f.t.Helper()
	must.Succeed(f.t, os.WriteFile(f.file, []byte(text), 0o600))
}

func (f *fleetOf) options() Options {
	return Options{Config: f.file, Components: f.kinds, Log: slog.New(slog.NewTextHandler(f.t.Output(), nil)), DrainTimeout: patience, retryOpen: f.retryOpen}
}

// lead makes the streams and an outbox.
func (f *fleetOf) lead() {
	t := f.t
	conn, err := fleet.Connect(t.Context(), f.plan.Config.Fleet, "leader", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	f.conn = conn
	must.Succeed(t, conn.Ready(t.Context()))
	must.Succeed(t, conn.Ensure(t.Context()))
	f.outbox = work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: "leader", Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); f.outbox.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended; must.Succeed(t, conn.Close()) })
}

// sink returns the work sink of a route, which is announced.
func (f *fleetOf) sink(route string) *work.Sink {
	f.t.Helper()
	for _, r := range f.plan.Routes {
		if r.Name != route {
			continue
		}
		hash, err := work.HashOf(f.plan.Config, r.Route)
		must.Succeed(f.t, err)
		s := f.outbox.Sink(work.Route{ID: r.ID, Hash: hash, Partitions: r.Workers.Partitions, Made: r.EmitProgram != nil})
		f.outbox.Use([]*work.Sink{s})
		return s
	}
	f.t.Fatalf("there is no route %s", route)
	return nil
}

// publish publishes a change of each object, with the same resourceVersion.
func (f *fleetOf) publish(s *work.Sink, version int, names ...string) {
	f.t.Helper()
	var events []event.Event
	for _, name := range names {
		o, err := event.ParseObject(pods, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":"%d"}}`, name, "uid-"+name, version))
		must.Succeed(f.t, err)
		events = append(events, chain.Event(&event.Delta{Source: "pods", Op: event.Added, New: o, Seen: time.Now()}, "first"))
	}
	for _, err := range s.Write(f.t.Context(), events) {
		must.Succeed(f.t, err)
	}
}

// start starts a worker, which ends with the function or the test.
func (f *fleetOf) start() (end func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	result := make(chan error, 1)
	go func() { result <- Run(ctx, f.options()) }()
	end = sync.OnceFunc(func() { cancel(); must.Report(f.t, <-result) })
	f.t.Cleanup(end)
	return end
}
