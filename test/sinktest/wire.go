package sinktest

import (
	"net"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// Wire stands between a sink and a server, and can be cut. It is safe for concurrent use.
type Wire struct {
	net.Listener
	mu     sync.Mutex
	target string
	silent bool // what the server says is swallowed
	conns  map[net.Conn]bool
	dialed int
	left   int           // bytes until it is cut by itself; 0: it is not
	cut    chan struct{} // closed when it is
	all    sync.WaitGroup
}

// NewWire listens on an address of its own, and leads to target.
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

// Cut ends the connections there are, and leads those that come to another server; to none if it is
// empty: they end at once.
func (w *Wire) Cut(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lead(target)
}

func (w *Wire) lead(target string) {
	w.target, w.silent = target, false
	for conn := range w.conns {
		_ = conn.Close()
	}
	clear(w.conns)
}

// CutAfter makes it cut itself, leading nowhere, when so many bytes have passed in both directions
// together.
func (w *Wire) CutAfter(bytes int) (cut <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.cut = bytes, make(chan struct{})
	return w.cut
}

// pass counts bytes, and says whether they are swallowed.
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

// Mute swallows what the server says from now on.
func (w *Wire) Mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
}

// Dials returns how many connections there have been.
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
		w.mu.Lock()
		w.dialed++
		target := w.target
		w.mu.Unlock()
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

// Target returns where connections lead.
func (w *Wire) Target() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.target
}

// Hide makes the wire lead to a listener that tells its clients to come by the wire.
func (w *Wire) Hide(l net.Listener) net.Listener {
	w.Cut(l.Addr().String())
	return &hidden{l, w.Addr()}
}

// hidden is a listener that calls itself by another address.
type hidden struct {
	net.Listener
	as net.Addr
}

// Addr implements net.Listener.
func (h *hidden) Addr() net.Addr { return h.as }
