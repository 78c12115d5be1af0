package sandboxtest

import (
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
