package host

import (
	"bytes"
	"errors"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// The fuel of host functions, in the units of package meter: about one per simple instruction, a
// fifth of a nanosecond. BenchmarkStopped determines the values: any endless loop of a guest uses
// up the default fuel in about the time of a loop of instructions.
const (
	callFuel = 300 // any call of a host function
	lineFuel = 500 // a line in the log

	// Copying costs little. Creating and parsing cost more.
	bytesPerFuel  = 2
	fuelPerRead   = 2 // of a text that was checked before
	fuelPerRandom = 8 // twice that for real random numbers
	fuelPerParsed = 6
	fuelPerChar   = 16

	// The additional fuel of a function, independent of the size of its data.
	clockFuel  = 200    // reading a clock
	emitFuel   = 1500   // parsing an event
	fieldFuel  = 200    // finding an object and a key
	kvFuel     = 400    // finding a key
	keepFuel   = 1500   // storing a value
	lookupFuel = 7000   // parsing a request
	objectFuel = 3000   // finding and sorting an object
	httpFuel   = 30_000 // parsing a request
	sendFuel   = 300_000
)

func copyFuel(bytes int) int64  { return int64(bytes / bytesPerFuel) }
func scanFuel(bytes int) int64  { return int64(bytes) * fuelPerRead }
func parseFuel(bytes int) int64 { return int64(bytes) * fuelPerParsed }
func textFuel(chars int) int64  { return int64(chars) * fuelPerChar }
func linesFuel(text []byte) int64 {
	return textFuel(len(text)) + int64(bytes.Count(text, []byte{'\n'})+1)*lineFuel
}

var (
	// ErrFuel is the error of a guest that exceeded the fuel of one delta.
	ErrFuel = errors.New("out of fuel")
	// ErrTime is the error of a guest that exceeded its time.
	ErrTime = errors.New("out of time")
	// ErrStack is the error of a guest whose calls were nested too deeply.
	ErrStack = errors.New("its calls are nested too deeply (an endless recursion?)")
)

// tank is the fuel of one instance. It uses the counters that package meter adds to a module.
type tank struct {
	fuel, stack, rest api.MutableGlobal
	limit             int32 // of the stack
	filled            int64 // the fuel at the start of the call

	slice  int64     // the fuel until the next pause, see pause.go
	paused time.Time // the time of the last pause, or of the start of the call
	ended  error     // the error of a pause that ended the guest

	deepest int32 // the maximum stack at a pause
}

// nativeStack returns the approximate size of the guest's native stack. The engine doubles the
// stack when it is full, and keeps it. A call without a pause is too short for a deep stack.
func (t *tank) nativeStack() uint64 { return 2 * uint64(max(t.deepest, 0)) }

// newTank finds the counters of a metered module, which always exist.
func newTank(m api.Module, metered *meter.Module) tank {
	return tank{
		fuel: m.ExportedGlobal(metered.Fuel).(api.MutableGlobal), stack: m.ExportedGlobal(metered.Stack).(api.MutableGlobal),
		rest:  m.ExportedGlobal(metered.Rest).(api.MutableGlobal),
		limit: metered.StackLimit, slice: MaxSlice,
	}
}

// fill is called before each call of the guest.
func (t *tank) fill(fuel int64) {
	t.filled = fuel
	first := min(fuel, t.slice)
	t.fuel.Set(uint64(first))
	t.rest.Set(uint64(fuel - first))
	t.stack.Set(0)
}

// used returns the fuel since the last fill, at most what was filled.
func (t *tank) used() int64 { return t.filled - max(t.left(), 0) }

// left returns the remaining fuel. It is negative if the guest has used more than it had.
func (t *tank) left() int64 { return int64(t.fuel.Get()) + int64(t.rest.Get()) }

// charge uses fuel for work of the host. It ends the guest if there is too little.
func (t *tank) charge(fuel int64) {
	t.fuel.Set(uint64(int64(t.fuel.Get()) - fuel))
	if t.left() < 0 {
		panic(ErrFuel) //nolint:forbidigo // how wazero unwinds a guest
	}
}

// why returns the error of a call that a counter or a pause ended, or nil. A guest pays its last
// instructions, up to a pause, after it has executed them: a call may return without enough fuel.
func (t *tank) why() error {
	switch {
	case t.fuel == nil:
		return nil
	case t.ended != nil:
		return t.ended
	case t.left() < 0:
		return ErrFuel
	case int32(t.stack.Get()) > t.limit:
		return ErrStack
	}
	return nil
}
