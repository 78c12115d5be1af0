package jsonval

import (
	"math"

	"github.com/google/cel-go/interpreter"
)

// Meter bounds the work of one evaluation: the rounds of its loops, the calls that take long, and
// the bytes of JSON that it reads. It belongs to one evaluation and its goroutine.
type Meter struct {
	left        int
	done        <-chan struct{} // of the context; nil: it does not end
	rounds      int             // of loops; some of them check done
	interrupted bool            // done was closed
}

// interruptFrequency is the number of rounds of a loop between two checks of the context.
const interruptFrequency = 100

// NewMeter returns a meter with that many units of work.
func NewMeter(work int) Meter { return Meter{left: work} }

// Watch makes the rounds of loops end the evaluation once done is closed.
func (m *Meter) Watch(done <-chan struct{}) { m.done = done }

// Interrupted reports whether the meter ended the evaluation because done was closed.
func (m *Meter) Interrupted() bool { return m.interrupted }

// Remaining returns the units of work that are left, at least 0.
func (m *Meter) Remaining() int { return max(0, m.left) }

// Lift removes the limit: a result is read after its evaluation, where the panic of Charge would
// not be recovered.
func (m *Meter) Lift() { m.left = math.MaxInt }

// Round charges a round of a loop, and ends the evaluation if its context has ended.
func (m *Meter) Round(work int) {
	m.Charge(work)
	if m.done == nil {
		return
	}
	if m.rounds++; m.rounds%interruptFrequency != 0 {
		return
	}
	select {
	case <-m.done:
		m.interrupted = true
		//nolint:forbidigo // see charge
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "interrupted"})
	default:
	}
}

// Charge takes n units of work, each about a nanosecond or a byte read. At the limit it ends the
// evaluation as cel-go does: with a panic that cel.Program.Eval turns into an error.
func (m *Meter) Charge(n int) {
	if m.left -= n; m.left < 0 {
		//nolint:forbidigo // a value cannot return an error from everywhere; cel-go ends evaluations in this way
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "too much work"})
	}
}
