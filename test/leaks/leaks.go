// Package leaks finds goroutines that the tests of a package have left running.
package leaks

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the tests. goleak waits half a second, in
// which a loaded machine may not run a goroutine that is about to end.
const patience = 30 * time.Second

// Runner is the interface of *testing.M.
type Runner interface{ Run() int }

// Main is the TestMain of a package: it runs the tests, and fails if goroutines are left.
func Main(m Runner, options ...goleak.Option) {
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
