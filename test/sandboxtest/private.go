package sandboxtest

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// mostPrivate is the number of tests of a package that have sandboxes of their own at the same
// time: an API server needs about 400 MB of memory, and seconds of a processor to start.
const mostPrivate = 2

// private has the tests with sandboxes of their own. It has to be a variable: the tests share
// nothing else.
var private = gate{free: make(chan struct{}, mostPrivate), held: map[string]int{}} //nolint:gochecknoglobals // see above

// gate admits tests. A test that is inside may start more sandboxes: if it waited for a place while
// it held one, two such tests would wait for each other. So may its subtests.
type gate struct {
	free chan struct{} // one entry for each test inside

	mu   sync.Mutex
	held map[string]int // number of sandboxes, by test
}

// admit waits for a place, which the test has until its sandboxes have ended.
func (g *gate) admit(tb testing.TB) {
	tb.Helper()
	test, _, _ := strings.Cut(tb.Name(), "/")
	if !g.more(test) {
		g.free <- struct{}{}
		g.mu.Lock()
		g.held[test]++
		g.mu.Unlock()
	}
	tb.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held[test]--; g.held[test] == 0 {
			delete(g.held, test)
			<-g.free
		}
	})
}

// more counts another sandbox of a test that is inside, and reports whether it is.
func (g *gate) more(test string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[test] == 0 {
		return false
	}
	g.held[test]++
	return true
}

// idle has the sandboxes of Borrow that no test uses. It has to be a variable, like shared.
var idle pool //nolint:gochecknoglobals // see above

type pool struct {
	mu   sync.Mutex
	free []*Sandbox
}

// take returns a sandbox that no test uses, or a new one.
func (p *pool) take() (*Sandbox, error) {
	if s := p.last(); s != nil {
		return s, nil
	}
	dir, err := os.MkdirTemp("", "sandbox-")
	if err != nil {
		return nil, err
	}
	s, err := start(dir, Options{})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.private = true
	return s, nil
}

// last takes a sandbox that is free; nil: there is none.
func (p *pool) last() *Sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	s := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return s
}

// give keeps a sandbox for the next test, unless one of its servers was stopped.
func (p *pool) give(s *Sandbox) {
	if s.etcd == nil || s.apiserver == nil {
		s.discard()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.free {
		s.discard()
	}
	p.free = nil
}

// discard ends a sandbox in a folder of its own.
func (s *Sandbox) discard() {
	s.close()
	_ = os.RemoveAll(s.dir)
}
