// Package fleet is the connection of a process to its fleet: the names of the streams and buckets
// in NATS JetStream, their settings, and the permissions that the process needs there.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/natsconn"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Conn is a connection to the NATS servers of a fleet. It reconnects for ever. It is safe for
// concurrent use.
type Conn struct {
	NATS  *nats.Conn
	JS    jetstream.JetStream
	Names Names

	// Complaints are the troubles of the connection, and of all that depends on it.
	Complaints *complaints.Log
	// Members are the keys of the leader and the standbys; nil: there are none, or it is a worker.
	Members *Keys
	// Workers are the keys of all processes; nil: there are none.
	Workers *Keys
	// Refused counts the refusals.
	Refused Refusals

	replicas int
	settings natsconn.Settings
	log      *slog.Logger
	closed   chan struct{}
	failures failures
}

const (
	connectTimeout = 3 * time.Second
	// requestTimeout bounds a request to JetStream without a deadline of its own.
	requestTimeout = 10 * time.Second
	bucketRetry    = time.Second
	reconnectWait  = 250 * time.Millisecond
	// pingInterval is the interval of pings on a silent connection. The connection is dead after
	// three pings without an answer.
	pingInterval = 2 * time.Second
	// maxText bounds the text of an error of a server in the log.
	maxText = 1 << 10
)

// Connect connects a member to the servers. client is the name that servers show. If no server can
// be reached within a few seconds, it returns a connection that goes on trying, see [Conn.Ready].
// The error is about unusable credentials or certificates, or ctx.
func Connect(ctx context.Context, cfg *config.Fleet, client string, log *slog.Logger) (*Conn, error) {
	return connect(ctx, cfg, Member, client, log)
}

// ConnectWorker is [Connect] of a worker, whose answers come to other subjects than those of
// members.
func ConnectWorker(ctx context.Context, cfg *config.Fleet, client string, log *slog.Logger) (*Conn, error) {
	return connect(ctx, cfg, Worker, client, log)
}

// connect connects with further options.
func connect(ctx context.Context, cfg *config.Fleet, role Role, client string, log *slog.Logger, more ...nats.Option) (*Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	c := &Conn{Names: NamesOf(cfg.Name), replicas: cfg.Replicas, settings: natsconn.Of(&cfg.NATS), log: log, Complaints: complaints.New(log), closed: make(chan struct{})}
	if err := c.readKeys(cfg, role); err != nil {
		return nil, err
	}
	options, err := c.settings.Options()
	if err != nil {
		return nil, fmt.Errorf("fleet.nats.%w", err)
	}
	// The connection is tried for ever, and a request fails at once while it is broken: each sender
	// knows itself whether and when to repeat it.
	options = append(options,
		nats.Name(client), nats.CustomInboxPrefix(c.Names.Inbox(role)), nats.SkipHostLookup(), nats.IgnoreAuthErrorAbort(),
		nats.Timeout(connectTimeout), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ReconnectBufSize(-1), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
		nats.ConnectHandler(c.connected), nats.ReconnectHandler(c.connected),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.disconnected(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.complain(err) }))
	// Without a server this succeeds, too: Ready waits for the connection.
	options = append(options, more...)
	if c.NATS, err = nats.Connect(strings.Join(cfg.NATS.Servers, ","), options...); err != nil {
		return nil, fmt.Errorf("fleet.nats: %w", err)
	}
	if c.JS, err = jetstream.New(c.NATS, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Ready waits until the connection exists. Its error has the reason of the last failed attempt.
func (c *Conn) Ready(ctx context.Context) error {
	for {
		if c.NATS.IsConnected() {
			return nil
		}
		changed := c.NATS.StatusChanged(nats.CONNECTED, nats.CLOSED)
		if c.NATS.IsConnected() {
			c.NATS.RemoveStatusListener(changed)
			return nil
		}
		var ended bool
		select {
		case <-changed:
			ended = c.NATS.IsClosed()
		case <-ctx.Done():
			ended = true
		}
		c.NATS.RemoveStatusListener(changed)
		if ended {
			return fmt.Errorf("NATS cannot be reached: %w", errors.Join(c.explain(c.failures.last()), context.Cause(ctx)))
		}
	}
}

// Trouble returns the reason why there is no connection, with a remedy; nil: there is one.
func (c *Conn) Trouble() error {
	if c.NATS.IsConnected() {
		return nil
	}
	if err := c.failures.last(); err != nil {
		return fmt.Errorf("NATS cannot be reached: %w", c.explain(err))
	}
	return errors.New("NATS cannot be reached")
}

// explain adds a remedy to the error of a connection.
func (c *Conn) explain(err error) error { return c.settings.Explain("fleet.nats.", err) }

// Bucket waits until the leader has made a bucket. waiting is called once if it has not.
func (c *Conn) Bucket(ctx context.Context, name string, waiting func(error)) (jetstream.KeyValue, error) {
	for said := false; ; said = true {
		asking, cancel := context.WithTimeout(ctx, connectTimeout)
		bucket, err := c.JS.KeyValue(asking, name)
		cancel()
		if err == nil {
			return bucket, nil
		}
		if !said && ctx.Err() == nil {
			waiting(err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("bucket %s: %w", name, errors.Join(err, context.Cause(ctx)))
		case <-time.After(bucketRetry):
		}
	}
}

// Close closes the connection and waits for the end of its goroutines.
func (c *Conn) Close() error {
	c.NATS.Close()
	<-c.closed
	c.Complaints.Close()
	return nil
}

func (c *Conn) connected(conn *nats.Conn) {
	c.failures.set(nil)
	c.Complaints.Say(slog.LevelInfo, "fleet: connected to NATS", nil, slog.Attr{},
		slog.String("server", conn.ConnectedUrlRedacted()), slog.String("version", conn.ConnectedServerVersion()))
}

func (c *Conn) disconnected(err error) {
	if err != nil {
		c.say("fleet: NATS cannot be reached, connecting again", err)
	}
}

func (c *Conn) complain(err error) {
	c.say("fleet: a NATS server reports an error", err)
}

func (c *Conn) say(message string, err error) {
	c.failures.set(err)
	c.Complaints.Say(slog.LevelWarn, message, errors.New(printable.Clean(c.explain(err).Error(), maxText)), slog.Attr{})
}

// failures keeps the last error of the connection.
type failures struct {
	mu  sync.Mutex
	err error
}

func (f *failures) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// set keeps an error; nil: the connection works.
func (f *failures) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}
