package consume

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = 2 * time.Minute

const stream = "W"

// gate lets the actions of a process through, unless the process stands still.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // closed when the process goes on; nil: it does not stand still
}

func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

func (g *gate) pause() (resume func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed := make(chan struct{})
	g.closed = closed
	return sync.OnceFunc(func() {
		g.mu.Lock()
		g.closed = nil
		g.mu.Unlock()
		close(closed)
	})
}

// Dial implements nats.CustomDialer: the connections of a process stand still with it.
func (g *gate) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &gated{c, g}, err
}

type gated struct {
	net.Conn

	gate *gate
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass()
	return n, err
}

func (c *gated) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}

func connect(t *testing.T, s *server.Server, g *gate) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL(), nats.SetCustomDialer(g), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	must.Succeed(t, err)
	js, err := jetstream.New(conn)
	must.Succeed(t, err)
	return conn, js
}

// setup makes the stream and the buckets.
func setup(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy, AllowDirect: true})
	must.Succeed(t, err)
	for _, name := range []string{"own", "members"} {
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name})
		must.Succeed(t, err)
	}
}

func bucket(t *testing.T, js jetstream.JetStream, name string) jetstream.KeyValue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kv, err := js.KeyValue(ctx, name)
	must.Succeed(t, err)
	return kv
}
