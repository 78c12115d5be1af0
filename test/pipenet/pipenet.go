// Package pipenet is a network within a process. A test in a bubble of testing/synctest uses it in
// place of TCP: the fake clock of the bubble stands still while a goroutine waits for a socket of
// the kernel.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
)

// Listener accepts the connections of its Dial. Nothing is buffered: a write waits for the reads of
// the other side. It is safe for concurrent use.
type Listener struct {
	dialed chan net.Conn
	closed chan struct{}
	close  sync.Once
}

// Listen returns a listener, which is to be closed.
func Listen() *Listener {
	return &Listener{dialed: make(chan net.Conn), closed: make(chan struct{})}
}

// Serve starts an HTTP server, which is to be closed, and returns it with its listener.
func Serve(handler http.Handler) (*httptest.Server, *Listener) {
	l := Listen()
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}} //nolint:gosec // the only client is the test
	server.Start()
	return server, l
}

// Dial connects to the listener, whatever the network and the address are. It waits until the
// connection is accepted. Its errors are those of ctx, and that of a closed port.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.dialed <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: l.Addr(), Err: syscall.ECONNREFUSED}
	}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialed:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. It closes no connection.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return addr{} }

type addr struct{}

func (addr) Network() string { return "pipe" }
func (addr) String() string  { return "in-process.invalid" }
