package work_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// patience limits the wait of a test. A successful test does not wait so long.
const patience = 2 * time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, address string) *fleet.Conn {
	t.Helper()
	cfg := &config.Fleet{Name: "f", Replicas: 1}
	cfg.NATS.Servers = []string{"nats://" + address}
	conn, err := fleet.Connect(patient(t), cfg, t.Name(), slog.New(slog.DiscardHandler))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// leader runs an outbox until the end of the test.
func leader(t *testing.T, conn *fleet.Conn, holder string) *work.Outbox {
	t.Helper()
	o := work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: holder, Log: slog.New(slog.DiscardHandler)})
	run(t, o)
	return o
}

func run(t *testing.T, o *work.Outbox) {
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
}

// events returns the n-th change of each object.
func events(t *testing.T, route string, n int, objects ...string) (all []event.Event) {
	for _, name := range objects {
		d := &event.Delta{Source: "pods", Op: event.Updated, Seen: time.Unix(int64(n), 0), New: object(t, fmt.Sprintf(
			`{"metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":"%d"}}`, name, name, n))}
		all = append(all, event.New(d, route, 0, event.Payload(d)))
	}
	return all
}

func write(t *testing.T, s *work.Sink, all []event.Event) {
	t.Helper()
	for i, err := range s.Write(patient(t), all) {
		if err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

// stored returns the messages in the stream: route, generation, partition, and the change.
func stored(t *testing.T, conn *fleet.Conn) (all []string) {
	t.Helper()
	stream, err := conn.JS.Stream(patient(t), conn.Names.Work())
	must.Succeed(t, err)
	c := work.NewCodec()
	var a work.Assembly
	filter := strings.TrimSuffix(conn.Names.WorkLead(), "lead") + "*.*.*.*"
	for seq := uint64(1); ; seq++ {
		m, err := stream.GetMsg(patient(t), seq, jetstream.WithGetMsgSubject(filter))
		if err != nil {
			break
		}
		seq = m.Sequence
		body, err := a.Add(m.Header, m.Data)
		must.Succeed(t, err)
		if body == nil {
			continue
		}
		got, err := c.Decode(body)
		must.Succeed(t, err)
		if place := strings.Split(m.Subject, "."); place[3] != fleet.Token(got.Route) {
			t.Errorf("route %s is at %s", got.Route, m.Subject)
		} else {
			all = append(all, fmt.Sprintf("%s/%s/%s %s@%s", got.Route, place[4], place[5], got.Delta.Key().Name, got.Delta.New.ResourceVersion()))
		}
	}
	return all
}

func expect(t *testing.T, conn *fleet.Conn, want ...string) {
	t.Helper()
	if got := stored(t, conn); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("stored\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Concurrent routes: each key is in one partition and in order, and nothing is lost.
func TestOutbox(t *testing.T) {
	// Guarantee: workers-key-order
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	o := leader(t, conn, "a")
	var all sync.WaitGroup
	for r := range 4 {
		s := o.Sink(work.Route{ID: fmt.Sprint("r", r), Hash: "h", Partitions: 4})
		for lane := range 3 {
			all.Go(func() {
				for n := range 20 {
					write(t, s, events(t, fmt.Sprint("r", r), n, fmt.Sprint("x", lane), fmt.Sprint("y", lane)))
				}
			})
		}
	}
	all.Wait()
	o.Use([]*work.Sink{o.Sink(work.Route{ID: "r1", Hash: "h", Partitions: 4})})
	if shown := o.Show(patient(t)); len(shown) != 1 || shown["r1"] != (work.Shown{Partitions: 4, Waiting: 3 * 20 * 2}) {
		t.Errorf("shown is %+v", shown)
	}
	next, place, count := map[string]int{}, map[string]string{}, 0
	for _, line := range stored(t, conn) {
		var where, what string
		_, err := fmt.Sscanf(line, "%s %s", &where, &what)
		must.Succeed(t, err)
		name, version, _ := strings.Cut(what, "@")
		key := strings.Split(where, "/")[0] + "/" + name
		if version != fmt.Sprint(next[key]) || next[key] > 0 && place[key] != where {
			t.Fatalf("%s at %s, want version %d at %s", what, where, next[key], place[key])
		}
		next[key]++
		place[key] = where
		count++
	}
	if count != 4*3*20*2 {
		t.Errorf("%d messages are stored", count)
	}
}

// An outbox without NATS refuses events soon. An event whose answer is missing is stored once.
func TestOutboxUnavailable(t *testing.T) {
	// Guarantee: workers-once
	// Guarantee: workers-nats-gone
	nats := embedded.Start(t, nil)
	wire := sinktest.NewWire(t, nats.Addr().String())
	o := leader(t, connect(t, wire.Addr().String()), "a")
	direct := connect(t, nats.Addr().String())
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	write(t, s, events(t, "r", 1, "x"))

	wire.Mute()
	unknown := events(t, "r", 2, "x", "y")
	errs := s.Write(patient(t), unknown)
	if len(errs) != 2 || errs[0] == nil || plugins.ClassOf(errs[1]) != plugins.Failed {
		t.Errorf("without an answer: %v", errs)
	}
	refused := events(t, "r", 3, "z")
	if errs := s.Write(patient(t), refused); len(errs) != 1 || plugins.ClassOf(errs[0]) != plugins.Failed {
		t.Errorf("while NATS is gone: %v", errs)
	}
	wire.Cut(nats.Addr().String())
	ctx := patient(t)
	sinktest.Until(t, "the events are stored", func() bool { return s.Write(ctx, unknown) == nil })
	write(t, s, refused)
	write(t, s, events(t, "r", 4, "x"))
	expect(t, direct, "r/1/0 x@1", "r/1/0 x@2", "r/1/0 y@2", "r/1/0 z@3", "r/1/0 x@4")
}

// A Write that is cancelled before its events were sent stores nothing.
func TestOutboxCancelled(t *testing.T) {
	nats := embedded.Start(t, nil)
	conn := connect(t, nats.Addr().String())
	o := work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: "a", Log: slog.New(slog.DiscardHandler)})
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := s.Write(ctx, events(t, "r", 1, "x")); len(errs) != 1 || errs[0] == nil {
		t.Errorf("got %v", errs)
	}
	if errs := s.Write(ctx, nil); errs != nil {
		t.Errorf("no events: %v", errs)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Run(running)
	}()
	write(t, s, events(t, "r", 2, "x"))
	expect(t, conn, "r/1/0 x@2")
	stop()
	<-ended
	if errs := s.Write(t.Context(), events(t, "r", 3, "x")); len(errs) != 1 || errs[0] == nil {
		t.Errorf("after the end: %v", errs)
	}
}

// Another member opens the stream: the outbox stores nothing more and says so.
func TestOutboxDeposed(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	first := leader(t, conn, "a")
	s := first.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	write(t, s, events(t, "r", 1, "x"))
	second := leader(t, conn, "b")
	write(t, second.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1}), events(t, "r", 2, "x"))
	if errs := s.Write(patient(t), events(t, "r", 3, "x")); len(errs) != 1 || plugins.ClassOf(errs[0]) != plugins.Failed {
		t.Errorf("the deposed one: %v", errs)
	}
	select {
	case <-first.Deposed():
	case <-patient(t).Done():
		t.Error("Deposed stays open")
	}
	expect(t, conn, "r/1/0 x@1", "r/1/0 x@2")
}

// Another number of partitions is another generation, also for a Write of the sink before.
func TestOutboxGenerations(t *testing.T) {
	// Guarantee: workers-key-order
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	o := leader(t, conn, "a")
	old := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1})
	write(t, old, events(t, "r", 1, "x"))
	now := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 2})
	write(t, old, events(t, "r", 2, "x"))
	o.Use([]*work.Sink{now})
	write(t, now, events(t, "r", 3, "x"))
	write(t, old, events(t, "r", 4, "x"))
	p := work.Partition("pods/n/x", 2)
	expect(t, conn, "r/1/0 x@1", "r/1/0 x@2", fmt.Sprintf("r/2/%d x@3", p), fmt.Sprintf("r/2/%d x@4", p))
}

// A leader that starts with a route that had workers before says that deltas wait for these, until
// none does.
func TestOutboxLeftOver(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	first := leader(t, conn, "a")
	for _, r := range []string{"r", "kept", "done"} {
		write(t, first.Sink(work.Route{ID: r, Hash: "h", Partitions: 1}), events(t, r, 1, "x", "y"))
	}
	stream, err := conn.JS.Stream(patient(t), conn.Names.Work())
	must.Succeed(t, err)
	must.Succeed(t, stream.Purge(patient(t), jetstream.WithPurgeSubject(conn.Names.WorkRoute("done"))))
	var log logged.Buffer
	o := work.NewOutbox(work.OutboxConfig{Conn: conn, Holder: "b", Log: slog.New(slog.NewTextHandler(&log, nil))})
	kept := o.Sink(work.Route{ID: "kept", Hash: "h", Partitions: 1})
	o.Use([]*work.Sink{kept})
	run(t, o)
	write(t, kept, events(t, "kept", 2, "x"))
	for range 2 {
		must.Succeed(t, o.Audit(patient(t)))
	}
	if got := fmt.Sprint(o.Stranded()); got != fmt.Sprintf("[{r %s 2}]", conn.Names.WorkRoute("r")) {
		t.Errorf("stranded is %s", got)
	}
	must.Succeed(t, stream.Purge(patient(t), jetstream.WithPurgeSubject(conn.Names.WorkRoute("r"))))
	must.Succeed(t, o.Audit(patient(t)))
	if got := o.Stranded(); len(got) > 0 {
		t.Errorf("stranded is %v", got)
	}
	if text := log.String(); strings.Count(text, "wait for workers") != 1 || !strings.Contains(text, "route=r waiting=2") {
		t.Errorf("the log is %s", text)
	}
}

// An event that is too large is rejected, and the others are stored; one in parts is whole.
func TestOutboxSizes(t *testing.T) {
	conn := connect(t, embedded.Start(t, nil).Addr().String())
	o := leader(t, conn, "a")
	s := o.Sink(work.Route{ID: "r", Hash: "h", Partitions: 1, Made: true})
	all := events(t, "r", 1, "small", "parts", "large", "last")
	for i, size := range []int{10, 5 << 20, 30 << 20, 10} {
		data := make([]byte, size)
		for k := range data {
			data[k] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-+"[rand.IntN(64)]
		}
		all[i].Data = []byte(`"` + string(data) + `"`)
	}
	errs := s.Write(patient(t), all)
	if len(errs) != 4 || errs[0] != nil || errs[1] != nil || plugins.ClassOf(errs[2]) != plugins.Rejected || errs[3] != nil {
		t.Errorf("got %v", errs)
	}
	expect(t, conn, "r/1/0 small@1", "r/1/0 parts@1", "r/1/0 last@1")
}
