package sinktest

import (
	"net"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// Wire is a proxy between a sink and a server that can be cut. It is safe for concurrent use.
type Wire struct {
	net.Listener
	mu     sync.Mutex
	target string
	silent bool          // discard the bytes of the server
	held   chan struct{} // closed by the next Cut; nil: connections do not wait for it
	conns  map[net.Conn]bool
	dialed int
	left   int           // bytes until it cuts itself; 0: never
	cut    chan struct{} // closed by that cut
	all    sync.WaitGroup
}

// NewWire listens on a new address and connects to target.
func NewWire(t testing.TB, target string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	w := &Wire{Listener: l, target: target, conns: map[net.Conn]bool{}}
	w.all.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.Cut("")
		w.all.Wait()
	})
	return w
}

// Cut ends the present connections and directs later ones to another server; if it is empty, they
// end at once.
func (w *Wire) Cut(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lead(target)
	if w.held != nil {
		close(w.held)
		w.held = nil
	}
}

// Hold ends the present connections. Later ones stay open, without an answer, until the next Cut
// directs them to a server.
func (w *Wire) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lead("")
	if w.held == nil {
		w.held = make(chan struct{})
	}
}

func (w *Wire) lead(target string) {
	w.target, w.silent = target, false
	for conn := range w.conns {
		_ = conn.Close()
	}
	clear(w.conns)
}

// CutAfter makes it cut itself, without a further target, after so many bytes in both directions
// together.
func (w *Wire) CutAfter(bytes int) (cut <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.cut = bytes, make(chan struct{})
	return w.cut
}

// pass counts bytes, and reports whether they must be discarded.
func (w *Wire) pass(n int, mutable bool) (drop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left > 0 {
		if w.left = max(w.left-n, 0); w.left == 0 {
			w.lead("")
			close(w.cut)
		}
	}
	return mutable && w.silent
}

// Mute discards the bytes of the server from now on.
func (w *Wire) Mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

// Dials returns the number of connections so far.
func (w *Wire) Dials() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dialed
}

func (w *Wire) accept() {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		target := w.dial()
		far, err := net.Dial("tcp", target)
		if target == "" || err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		if w.target != target { // it was cut meanwhile
			_, _ = near.Close(), far.Close()
		}
		w.conns[near], w.conns[far] = true, true
		w.mu.Unlock()
		w.all.Go(func() { w.copy(far, near, false) })
		w.all.Go(func() { w.copy(near, far, true) })
	}
}

// dial counts a connection and returns its target, when there is one.
func (w *Wire) dial() (target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed++
	for w.held != nil {
		held := w.held
		w.mu.Unlock()
		<-held
		w.mu.Lock()
	}
	return w.target
}

func (w *Wire) copy(to, from net.Conn, mutable bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if !w.pass(n, mutable) {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Target returns the target of connections.
func (w *Wire) Target() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.target
}

// Hide directs the wire to a listener that announces the wire's address as its own.
func (w *Wire) Hide(l net.Listener) net.Listener {
	w.Cut(l.Addr().String())
	return &hidden{l, w.Addr()}
}

// hidden is a listener that announces another address.
type hidden struct {
	net.Listener
	as net.Addr
}

// Addr implements net.Listener.
func (h *hidden) Addr() net.Addr { return h.as }
