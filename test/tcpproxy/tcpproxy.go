// Package tcpproxy forwards TCP connections for tests that need a broken network.
package tcpproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// dialTimeout bounds the proxy's connection to its target.
const dialTimeout = 5 * time.Second

// mode is the way in which a Proxy treats bytes and connections.
type mode int

const (
	forwarding mode = iota // forwards everything
	blocked                // accepts connections and bytes, forwards nothing
	refused                // resets each connection at once
)

// Proxy forwards TCP connections to its target, until it is set to block or refuse.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	mode    mode
	changed chan struct{} // closed at the next change of mode
	pairs   map[*pair]struct{}
	running sync.WaitGroup
}

// pair is a connection of a client and the corresponding connection to the server.
type pair struct {
	client, server *net.TCPConn
	once           sync.Once
	done           chan struct{} // closed by reset
}

// reset ends both connections with a reset, like a peer that has disappeared, instead of the end of
// stream of a peer that is done.
func (c *pair) reset() {
	c.once.Do(func() {
		close(c.done)
		for _, conn := range []*net.TCPConn{c.client, c.server} {
			_ = conn.SetLinger(0)
			_ = conn.Close()
		}
	})
}

// Start starts a proxy for target, an address, that ends with the test.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("tcpproxy: %v", err)
	}
	p := &Proxy{listener: listener, target: target, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.running.Add(1)
	go p.accept()
	tb.Cleanup(p.close)
	return p
}

// Addr is the address of the proxy: host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets all open connections. New ones are forwarded, unless Block or Refuse is on.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.reset() // its goroutines remove it from the map
	}
}

// Block behaves like a network that loses everything: connections stay open and new ones are
// accepted, but no byte passes until Unblock, which then delivers the held bytes.
func (p *Proxy) Block() { p.setMode(blocked) }

// Refuse behaves like a server that is down: it cuts all connections, and resets new ones at once
// until Unblock.
func (p *Proxy) Refuse() {
	p.setMode(refused)
	p.Cut()
}

// Unblock ends Block and Refuse.
func (p *Proxy) Unblock() { p.setMode(forwarding) }

// Connections returns the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

func (p *Proxy) setMode(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// close ends the proxy and waits for its goroutines.
func (p *Proxy) close() {
	_ = p.listener.Close()
	p.Refuse()
	p.running.Wait()
}

func (p *Proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Add(1)
		go p.serve(client.(*net.TCPConn))
	}
}

// serve carries one connection until both sides have ended it, or one fails.
func (p *Proxy) serve(client *net.TCPConn) {
	defer p.running.Done()
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server.(*net.TCPConn), done: make(chan struct{})}
	if !p.add(c) {
		c.reset()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, c.server, c.client) })
	both.Go(func() { p.copy(c, c.client, c.server) })
	both.Wait()
	_ = c.client.Close()
	_ = c.server.Close()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// add adds a pair, unless connections are refused.
func (p *Proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == refused {
		return false
	}
	p.pairs[c] = struct{}{}
	return true
}

// copy forwards bytes and then the end of stream. It holds them while the proxy is blocked.
func (p *Proxy) copy(c *pair, to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.waitForwarding(c)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				c.reset()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite() // an error means that the connection is closed already
			return
		}
		if err != nil {
			c.reset()
			return
		}
	}
}

// waitForwarding returns when the proxy is not blocked, or the pair was reset.
func (p *Proxy) waitForwarding(c *pair) {
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		if mode != blocked {
			return
		}
		select {
		case <-changed:
		case <-c.done:
			return
		}
	}
}
