// Package leaks finds goroutines that the tests of a package have left running.
package leaks

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the tests. goleak waits half a second, in
// which a loaded machine may not run a goroutine that is about to end.
const patience = 30 * time.Second

// objectStore ignores a goroutine that nats.go leaves behind. A Put into an object store starts it,
// and it waits for ever if Put ends before it has run: it then reads the channel that Put has
// removed (nats.go v1.55.0, jetstream/publish.go, resetPendingAcksOnReconnect). A connection that a
// test leaves open is still found, by its other goroutines.
var objectStore = goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect")

// Runner is the interface of *testing.M.
type Runner interface{ Run() int }

// Main is the TestMain of a package: it runs the tests, and fails if goroutines are left.
func Main(m Runner, options ...goleak.Option) {
	options = append(options, objectStore)
	goleak.VerifyTestMain(&patient{m, options}, options...)
}

type patient struct {
	m       Runner
	options []goleak.Option
}

// Run implements [Runner].
func (p *patient) Run() int {
	code, begun := p.m.Run(), time.Now()
	for code == 0 && goleak.Find(p.options...) != nil && time.Since(begun) < patience {
		time.Sleep(time.Millisecond)
	}
	return code
}
