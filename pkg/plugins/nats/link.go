package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// link is one connection to a server. It does not reconnect.
type link struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	closed chan struct{}
	// the stream exists, or the configuration does not ask to create it
	ensured atomic.Bool
	// the last error of the server that concerns no single event, such as a missing permission
	complain atomic.Pointer[error]
}

// dial connects. It reads all files of the configuration again. complain gets the errors of the
// server that concern no single event.
func dial(ctx context.Context, c *sinkConfig, complain func(error)) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	l := &link{closed: make(chan struct{})}
	d := &dialer{ctx: ctx}
	options, err := c.connection().Options()
	if err != nil {
		return nil, err
	}
	options = append(options,
		nats.Name("deltarouter"), nats.NoReconnect(), nats.Timeout(c.Timeout), nats.SetCustomDialer(d), nats.SkipHostLookup(),
		nats.FlusherTimeout(min(c.Timeout, maxFlush)), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			err = plugins.Bound(c.hide(err))
			l.complain.Store(&err)
			complain(err)
		}))
	l.conn, err = nats.Connect(strings.Join(c.Servers, ","), options...)
	if stopped := d.done(); !stopped && err == nil {
		l.conn.Close() // the context ended at the last moment and closed the connection
		err = context.Cause(ctx)
	}
	if errors.Is(err, nats.ErrNoServers) && d.err != nil {
		err = d.err // it has the reason
	}
	if err != nil {
		return nil, c.hide(err)
	}
	if l.js, err = jetstream.New(l.conn, jetstream.WithDefaultTimeout(c.Timeout)); err != nil {
		l.conn.Close()
		return nil, err
	}
	// The first call starts the goroutine that close ends. It must not start during the first
	// publication, so it starts here. The call publishes nothing, because the subject is empty.
	_, _ = l.js.PublishMsgAsync(&nats.Msg{})
	return l, nil
}

const (
	// maxFlush is the maximum time of a write to a blocked connection.
	maxFlush = 4 * time.Second
	// pingInterval is the interval of pings on a silent connection. The connection is dead after
	// three pings without an answer.
	pingInterval = 15 * time.Second
)

// dialer ends the connections of one nats.Connect with its context.
type dialer struct {
	ctx  context.Context // nats.go calls Dial without a context
	stop func() bool
	err  error // of the last failed connection
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if d.stop != nil {
		d.stop()
	}
	conn, err := (&net.Dialer{}).DialContext(d.ctx, network, address)
	if err != nil {
		d.err = err
		return nil, err
	}
	d.stop = context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// done detaches the connection from the context. It returns false if the context has ended already.
func (d *dialer) done() bool { return d.stop == nil || d.stop() }

// ensure creates the stream if the configuration asks for it and the stream does not exist.
func (l *link) ensure(ctx context.Context, c *sinkConfig, s subject) error {
	if l.ensured.Load() || !c.Stream.Create {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	_, err := l.js.Stream(ctx, c.Stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = l.js.CreateStream(ctx, c.Stream.settings(s))
	}
	// Another router may have created it in the meantime.
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("stream %s: %w", c.Stream.Name, err)
	}
	l.ensured.Store(true)
	return nil
}

func (s *streamConfig) settings(subjects subject) jetstream.StreamConfig {
	settings := jetstream.StreamConfig{
		Name: s.Name, Description: "made by deltarouter", Subjects: []string{subjects.all()},
		Replicas: s.Replicas, MaxAge: s.MaxAge, MaxBytes: -1, Duplicates: s.Duplicates, Storage: jetstream.FileStorage,
	}
	if s.MaxBytes > 0 {
		settings.MaxBytes = int64(s.MaxBytes)
	}
	if s.Storage == "memory" {
		settings.Storage = jetstream.MemoryStorage
	}
	return settings
}

// close closes the connection and waits for the end of its goroutines.
func (l *link) close(ctx context.Context) error {
	l.conn.Close()
	select {
	case <-l.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
