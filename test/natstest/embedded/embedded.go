// Package embedded runs NATS servers within the process of a test. Tests that kill or pause a
// server, or need a cluster, use the processes of package natstest.
package embedded

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/must"
)

// patience limits the start of a server. A successful test does not wait so long.
const patience = 2 * time.Minute

// Start starts a server with JetStream, which ends with the test. change may modify its options;
// nil: it has no users and a port of its own.
func Start(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	options := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30,
	}
	if change != nil {
		change(options)
	}
	s, err := server.NewServer(options)
	must.Succeed(t, err)
	s.Start()
	t.Cleanup(func() { Stop(s) })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s
}

// Stop ends a server and waits for its end. It may be called more than once.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// JetStream returns a client of a server, which ends with the test.
func JetStream(t testing.TB, s *server.Server, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL(), options...)
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must.Succeed(t, err)
	return js
}
