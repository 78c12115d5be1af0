package nats_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; none waits so long when all is well.
const patience = 30 * time.Second

// serve starts a server with JetStream, with what change makes of its options.
func serve(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	options := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 20,
	}
	if change != nil {
		change(options)
	}
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { stop(s) })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// admin is a second client, which looks at what the server has.
func admin(t *testing.T, s *server.Server, options ...client.Option) jetstream.JetStream {
	t.Helper()
	conn, err := client.Connect(s.ClientURL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func stream(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	if config.Name == "" {
		config.Name = "k8s"
	}
	if config.Subjects == nil {
		config.Subjects = []string{"k8s.>"}
	}
	s, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// kept returns the messages of a stream, in order.
func kept(t *testing.T, s jetstream.Stream) []*jetstream.RawStreamMsg {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for n := info.State.FirstSeq; n <= info.State.LastSeq && info.State.Msgs > 0; n++ {
		m, err := s.GetMsg(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func env() plugins.Env {
	return plugins.Env{Name: "bus", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	f := nats.Factory()
	if problems := f.Check(plugintest.Node(t, config)); problems != nil {
		t.Fatal(problems)
	}
	sink, err := f.Open(t.Context(), plugintest.Node(t, config), env())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return sink
}

// events returns n events, each of an object of its own.
func events(t testing.TB, prefix string, n int) []event.Event {
	t.Helper()
	all := make([]event.Event, n)
	for i := range all {
		d := &event.Delta{Source: "pods", Op: event.Added, New: plugintest.Pod(t, fmt.Sprintf("%s-%d", prefix, i), i+1, 20), Seen: time.Unix(1, 0)}
		all[i] = event.New(d, "r", 0, event.Payload(d))
	}
	return all
}

// verdicts spells what Write said: d delivered, r rejected, u unavailable.
func verdicts(n int, errs []error) string {
	if errs == nil {
		errs = make([]error, n)
	}
	var s []byte
	for _, err := range errs {
		switch {
		case err == nil:
			s = append(s, 'd')
		case plugins.IsRejected(err):
			s = append(s, 'r')
		default:
			s = append(s, 'u')
		}
	}
	return string(s)
}

// wire stands between the sink and a server, and can be cut.
type wire struct {
	net.Listener
	mu     sync.Mutex
	target string
	silent bool // what the server says is swallowed
	conns  map[net.Conn]bool
	dialed int
	all    sync.WaitGroup
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, target: target, conns: map[net.Conn]bool{}}
	w.all.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.cut("")
		w.all.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.Addr().String() }

// cut ends what is open, and leads what comes to another server; to none if it is empty.
func (w *wire) cut(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target, w.silent = target, false
	for conn := range w.conns {
		_ = conn.Close()
	}
}

func (w *wire) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

func (w *wire) dials() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialed
}

func (w *wire) accept() {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.dialed++
		target := w.target
		w.mu.Unlock()
		far, err := net.Dial("tcp", target)
		if target == "" || err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		w.conns[near], w.conns[far] = true, true
		w.mu.Unlock()
		w.all.Go(func() { w.copy(far, near, false) })
		w.all.Go(func() { w.copy(near, far, true) })
	}
}

func (w *wire) copy(to, from net.Conn, mutable bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		w.mu.Lock()
		drop := mutable && w.silent
		w.mu.Unlock()
		if !drop {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
