package remote

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/deltarouter/deltarouter/internal/api"
)

// conn is a connection through a tunnel: a stream of data, and one on which the kubelet says why
// there is no data.
type conn struct {
	tunnel       *tunnel
	data, reason httpstream.Stream

	said   chan struct{} // closed when text is complete
	text   string
	closed chan struct{}
	once   sync.Once
}

// listen reads the reason.
func (c *conn) listen() {
	defer close(c.said)
	text, _ := io.ReadAll(io.LimitReader(c.reason, maxReason)) // an error ends the reason
	c.text = strings.TrimSpace(string(text))
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.data.Read(p)
	if err != nil {
		if why := c.why(); why != nil {
			return n, why
		}
	}
	return n, err
}

// why returns the reason for the end of the data; nil: the router has closed the connection.
func (c *conn) why() error {
	timer := time.NewTimer(reasonTimeout)
	defer timer.Stop()
	select {
	case <-c.closed:
		return net.ErrClosed
	case <-c.said:
	case <-c.tunnel.stream.CloseChan():
	case <-timer.C:
	}
	if lost := c.tunnel.lost(); lost != nil {
		return lost
	}
	select {
	case <-c.said:
		if c.text != "" {
			return c.refused()
		}
	default:
	}
	return nil
}

// refused words the kubelet's reason.
func (c *conn) refused() error {
	pod := c.tunnel.pod
	if strings.Contains(c.text, "connection refused") {
		return &api.UnreachableError{Text: fmt.Sprintf("in pod %s no process listens on 127.0.0.1:%d: set listen.api to that, or name its port of the container %q, and restart the router", pod, pod.port, portName)}
	}
	return &brokenError{&api.UnreachableError{Text: fmt.Sprintf("the connection to port %d of pod %s failed: %s", pod.port, pod, c.text)}}
}

// brokenError is the end of a connection that the port has accepted.
type brokenError struct{ *api.UnreachableError }

// Unwrap is for [errors.As].
func (e *brokenError) Unwrap() error { return e.UnreachableError }

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.data.Write(p)
	if err != nil {
		if lost := c.tunnel.lost(); lost != nil {
			return n, lost
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		// Close and Reset: the kubelet sees the end, and data that is not read does not block the
		// other streams.
		_ = c.data.Close()
		_ = c.data.Reset()
		_ = c.reason.Reset()
		c.tunnel.stream.RemoveStreams(c.data, c.reason)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address{c.tunnel.pod.String()} }

// SetDeadline implements net.Conn. A stream has no deadlines: a request ends with its context,
// which closes the connection.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// address is an end of a tunnel.
type address struct{ name string }

// Network implements net.Addr.
func (address) Network() string { return "pod" }

// String implements net.Addr.
func (a address) String() string { return a.name }
