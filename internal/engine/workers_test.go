package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/pipeline"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// patience limits the waits of the tests with NATS.
const patience = 2 * time.Minute

const shared = `version: 1
sources:
  nodes: {resource: v1/nodes}
handlers:
  h: {fake: {setting: 1}}
sinks:
  a: {fake: {setting: 2}}
  b: {fake: {setting: 3}}
  c: {fake: {setting: 4}}
routes:
  - {name: local, from: nodes, to: a}
  - {name: far, from: nodes, handler: h, to: [b, c]}
  - {name: emits, from: nodes, emit: '{"name": object.metadata.name}', to: b}
`

// remotePlan compiles a configuration in which some routes have workers.
func remotePlan(t *testing.T, env *engine.Env, text string, partitions int, routes ...string) *compile.Plan {
	p := plan(t, env, text)
	for i := range p.Routes {
		if slices.Contains(routes, p.Routes[i].Name) {
			p.Routes[i].Workers = &config.Workers{Partitions: partitions, Pending: 256}
		}
	}
	return p
}

// outbox runs an outbox with a NATS server.
func outbox(t *testing.T) (*work.Outbox, *fleet.Conn) {
	cfg := &config.Fleet{Name: "f", Replicas: 1}
	cfg.NATS.Servers = natstest.Start(t, natstest.Config{}).URLs()
	conn, err := fleet.Connect(t.Context(), cfg, "test", slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	o := work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: "a", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return o, conn
}

// passed waits for n messages in the stream and returns them, sorted.
func passed(t *testing.T, conn *fleet.Conn, n int) (all []string) {
	t.Helper()
	codec := work.NewCodec()
	end, again := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for len(all) < n {
		select {
		case <-again.C:
		case <-end:
			t.Fatalf("waited in vain for %d messages, got %q", n, all)
		}
		all = nil
		stream, err := conn.JS.Stream(t.Context(), conn.Names.Work())
		if err != nil {
			continue
		}
		for seq := uint64(1); ; seq++ {
			m, err := stream.GetMsg(t.Context(), seq, jetstream.WithGetMsgSubject("dr.f.w.*.*.*.*"))
			if err != nil {
				break
			}
			seq = m.Sequence
			got, err := codec.Decode(m.Data)
			must.Succeed(t, err)
			made := ""
			switch e := got.Delta.Event; {
			case got.Made:
				made = " " + string(e.Data)
			case e != nil:
				made = " with " + string(e.Data)
			}
			all = append(all, fmt.Sprintf("%s %s%s%s", got.Route, got.Delta.Key().Name, made, strings.TrimSuffix(" only "+got.Target, " only ")))
		}
	}
	slices.Sort(all)
	return all
}

// start starts the engine of a plan, with objects that are injected as nodes.
func start(t *testing.T, env *engine.Env, p *compile.Plan) (*engine.Engine, *informer.Injector) {
	e := engine.New(env, p)
	must.Succeed(t, e.OpenSet(t.Context()))
	e.OpenFactory(nil)
	wanted := e.Set.WantedWatches()[0]
	watch := wanted.Add(e.Factory)
	injector, err := watch.Injector("Node")
	must.Succeed(t, err)
	saved := map[string]*informer.Watch{wanted.Spec.ID(): watch}
	must.Succeed(t, e.OpenPipeline(pipeline.Config{Routes: e.Set.Routes()}))
	must.Succeed(t, e.OpenSaved(t.Context(), saved))
	e.Start(t.Context(), t.Context())
	t.Cleanup(func() { must.Report(t, e.Close(context.WithoutCancel(t.Context()))) })
	must.Succeed(t, injector.List(t.Context(), nil, "1"))
	return e, injector
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestWorkers: the deltas of routes with workers go into the stream in place of their handler and
// sinks, which are not opened; an emit is evaluated here. A redelivered dead letter keeps its sink.
func TestWorkers(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	env := r.env()
	var conn *fleet.Conn
	env.Work, conn = outbox(t)
	e, nodes := start(t, env, remotePlan(t, env, shared, 4, "far", "emits"))
	expect(t, "opened", r.take(), "open a")
	for _, route := range e.Set.Routes() {
		if far := route.Name != "local"; far == (route.Retry.MaxAge < 365*24*time.Hour) {
			t.Errorf("deltas of route %s become dead letters after %v", route.Name, route.Retry.MaxAge)
		}
	}
	must.Succeed(t, nodes.Put(t.Context(), object("Node", "n", "")))
	expect(t, "a node", passed(t, conn, 2), `emits n {"name":"n"}`, "far n")
	letter := checkpoint.Letter{ID: 1, Route: "far", Sink: "c", Error: "no", Delta: delta(t, "m")}
	must.Succeed(t, e.Pipeline.Redeliver(t.Context(), letter))
	expect(t, "a dead letter", passed(t, conn, 3), `emits n {"name":"n"}`, "far m only c", "far n")
	letter.Sink, letter.ID = "gone", 2
	if err := e.Pipeline.Redeliver(t.Context(), letter); err == nil {
		t.Error("a dead letter of a sink that the route does not have is redelivered")
	}
}

const grouping = `version: 1
sources:
  nodes: {resource: v1/nodes}
handlers:
  h: {fake: {setting: 1}}
sinks:
  a: {fake: {setting: 2}}
routes:
  - {name: group, from: nodes, batch: {by: '"all"', size: 2, wait: 1h}, emit: '{"n": objects.size()}', to: [{route: far}]}
  - {name: far, handler: h, to: a}
`

// TestWorkersOfChain: the workers of the last route of a chain get one message for the event of a
// group, which the leader has collected.
func TestWorkersOfChain(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	env := r.env()
	var conn *fleet.Conn
	env.Work, conn = outbox(t)
	_, nodes := start(t, env, remotePlan(t, env, grouping, 4, "far"))
	expect(t, "opened", r.take())
	must.Succeed(t, nodes.Put(t.Context(), object("Node", "n", "")))
	must.Succeed(t, nodes.Put(t.Context(), object("Node", "m", "")))
	expect(t, "a group", passed(t, conn, 1), `far m with {"n":2}`)
}

// TestWorkersReload: a route keeps its sink over reloads that do not concern its workers, and
// cannot lose its workers while deltas wait for them.
func TestWorkersReload(t *testing.T) {
	// Guarantee: workers-hand-back
	t.Parallel()
	r := &recorder{}
	env := r.env()
	var conn *fleet.Conn
	env.Work, conn = outbox(t)
	e, nodes := start(t, env, remotePlan(t, env, shared, 4, "far"))
	reload := func(text string, partitions int, routes ...string) *engine.Set {
		next := engine.NewSet(env, remotePlan(t, env, text, partitions, routes...))
		must.Succeed(t, next.OpenComponents(t.Context(), e.Set))
		next.OpenStores(e.Set)
		return next
	}
	before := versions(e.Set)["far"]
	for what, test := range map[string]struct {
		text       string
		partitions int
		same       bool
	}{
		"nothing":         {shared, 4, true},
		"another sink":    {strings.Replace(shared, "setting: 2", "setting: 9", 1), 4, true},
		"its own sink":    {strings.Replace(shared, "setting: 4", "setting: 9", 1), 4, false},
		"its own handler": {strings.Replace(shared, "setting: 1", "setting: 9", 1), 4, false},
		"partitions":      {shared, 5, false},
	} {
		if now := versions(reload(test.text, test.partitions, "far"))["far"]; (now == before) != test.same {
			t.Errorf("%s: the version is %q, it was %q", what, now, before)
		}
	}
	must.Succeed(t, nodes.Put(t.Context(), object("Node", "n", "")))
	passed(t, conn, 1)
	local := reload(shared, 4)
	resume, err := e.Set.Remote.Retire(t.Context(), &local.Remote)
	must.Fail(t, err, "route far is without workers now: deltas wait for the workers, so the reload is retried; see router status")
	must.Succeed(t, nodes.Put(t.Context(), object("Node", "m", "")))
	resume()
	passed(t, conn, 2)
	gone := reload(strings.Replace(shared, "  - {name: far, from: nodes, handler: h, to: [b, c]}\n", "", 1), 4)
	if resume, err = e.Set.Remote.Retire(t.Context(), &gone.Remote); !errors.Is(err, engine.ErrWorkersBusy) {
		t.Errorf("a removed route: %v", err)
	}
	resume()
	stream, err := conn.JS.Stream(t.Context(), conn.Names.Work())
	must.Succeed(t, err)
	must.Succeed(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(conn.Names.WorkRoute("far"))))
	_, err = e.Set.Remote.Retire(t.Context(), &local.Remote)
	must.Succeed(t, err)
	_, err = e.Set.Remote.Retire(t.Context(), &gone.Remote)
	must.Succeed(t, err)
}

func delta(t *testing.T, name string) *event.Delta {
	o, err := event.ParseObject(&event.Resource{}, object("Node", name, ""))
	must.Succeed(t, err)
	return &event.Delta{Source: "nodes", Op: event.Added, New: o, Seen: time.Now()}
}
