package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience limits the wait of a test. A successful test does not wait so long.
const patience = time.Minute

// serve starts a server with JetStream. change may modify its options.
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
	must.Succeed(t, err)
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

// admin returns a second client, for the inspection of the server.
func admin(t *testing.T, s *server.Server, options ...client.Option) jetstream.JetStream {
	t.Helper()
	conn, err := client.Connect(s.ClientURL(), options...)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	return s
}

// kept returns the messages of a stream, in order.
func kept(t *testing.T, s jetstream.Stream) []*jetstream.RawStreamMsg {
	t.Helper()
	info, err := s.Info(t.Context())
	must.Succeed(t, err)
	var all []*jetstream.RawStreamMsg
	for n := info.State.FirstSeq; n <= info.State.LastSeq && info.State.Msgs > 0; n++ {
		m, err := s.GetMsg(t.Context(), n)
		must.Succeed(t, err)
		all = append(all, m)
	}
	return all
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	return sinktest.Open(t, nats.Kind(), config)
}

func url(w *sinktest.Wire) string { return "nats://" + w.Addr().String() }
