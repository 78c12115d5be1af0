package api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// quietWarnings is the minimum time between two warnings about closed connections.
const quietWarnings = time.Minute

// bound bounds the connections of a server that has not started, so that clients that connect and
// send nothing keep no other client out. At most perAddress connections of an address are open, and
// most in all: above that, the oldest connection without a request is closed, of the address that
// has most of these. At most once a minute the log has a warning with the number of closed ones.
func bound(server *http.Server, most, perAddress int, log *slog.Logger) {
	c := newConnections(most, perAddress, log)
	server.Handler = c.heard(server.Handler)
	server.ConnState = c.changed
	server.ConnContext = c.inContext
}

// connections are the open connections of a server. It is safe for concurrent use.
type connections struct {
	most       int
	perAddress int
	log        *slog.Logger
	now        func() time.Time

	mu     sync.Mutex
	open   map[net.Conn]*connection
	last   uint64 // number of the newest connection
	closed int    // since the last warning
	warned time.Time
}

// connection is an open connection.
type connection struct {
	number  uint64 // they grow with each connection
	address string // of the client, without the port
	waiting bool   // it has sent no complete header since its start or its last response
}

// connectionKey is the key of the connection in the context of a request.
type connectionKey struct{}

func newConnections(most, perAddress int, log *slog.Logger) *connections {
	return &connections{most: most, perAddress: perAddress, log: log, now: time.Now, open: map[net.Conn]*connection{}}
}

// changed is http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if surplus := c.admit(conn); surplus != nil {
			_ = socketOf(surplus).Close() // the goroutine of the connection sees it and ends
		}
	case http.StateIdle:
		c.setWaiting(conn, true)
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		delete(c.open, conn)
		c.mu.Unlock()
	case http.StateActive: // its first byte; the header may never come
	}
}

// inContext is http.Server.ConnContext.
func (*connections) inContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// heard calls next after it has noted that the connection of the request sent its header. It does
// nothing if the connection was closed before, so no more requests run than connections may be
// open.
func (c *connections) heard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(connectionKey{}).(net.Conn); ok && c.setWaiting(conn, false) {
			next.ServeHTTP(w, r)
		}
	})
}

// setWaiting reports whether the connection is open.
func (c *connections) setWaiting(conn net.Conn, waiting bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[conn]
	if known != nil {
		known.waiting = waiting
	}
	return known != nil
}

// admit adds a new connection, and returns the one that exceeds a bound, which may be the new one;
// nil: none does.
func (c *connections) admit(conn net.Conn) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	address := addressOf(conn)
	c.open[conn] = &connection{number: c.last, address: address, waiting: true}

	ofAddress, waiting := 0, map[string]int{}
	for _, o := range c.open {
		if o.address == address {
			ofAddress++
		}
		if o.waiting {
			waiting[o.address]++
		}
	}
	if ofAddress <= c.perAddress && len(c.open) <= c.most {
		return nil
	}
	for conn, o := range c.open {
		candidate := o.waiting && (ofAddress <= c.perAddress || o.address == address)
		if candidate && (surplus == nil || goesBefore(o, c.open[surplus], waiting)) {
			surplus = conn
		}
	}
	delete(c.open, surplus)
	c.warn()
	return surplus
}

// goesBefore reports whether to close a rather than b: the address with more connections without a
// request decides, then the age.
func goesBefore(a, b *connection, waiting map[string]int) bool {
	if n, m := waiting[a.address], waiting[b.address]; n != m {
		return n > m
	}
	return a.number < b.number
}

// warn counts a closed connection, and logs their number at most once per quietWarnings. The lock
// is held.
func (c *connections) warn() {
	c.closed++
	if now := c.now(); now.Sub(c.warned) >= quietWarnings {
		c.log.Warn("too many connections are open: connections without a request were closed, the oldest first",
			"closed", c.closed, "limit", c.most, "limit_per_address", c.perAddress)
		c.closed, c.warned = 0, now
	}
}

// addressOf returns the address of a client without its port. The clients of a socket have the
// same.
func addressOf(conn net.Conn) string {
	remote := conn.RemoteAddr()
	if remote == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(remote.String())
	if err != nil {
		return ""
	}
	return host
}

// socketOf returns the connection below TLS: to close it sends nothing, and so never waits.
func socketOf(conn net.Conn) net.Conn {
	if secured, ok := conn.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return conn
}
