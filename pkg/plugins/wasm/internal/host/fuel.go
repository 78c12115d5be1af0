package host

import (
	"bytes"
	"errors"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// The fuel of host functions, in the units of package meter: about one for each simple instruction,
// a fifth of a nanosecond. It is set by BenchmarkStopped: whatever a guest does for ever, the
// default fuel is burnt as soon as by a loop, or nearly.
const (
	callFuel = 300 // any call of a host function
	lineFuel = 500 // a line of text for the log

	// What is copied costs little, what is made or read much.
	bytesPerFuel  = 2
	fuelPerRandom = 8 // if it is really random, twice that
	fuelPerParsed = 6
	fuelPerChar   = 16

	// What a function does beyond that, however little it has to work on.
	clockFuel  = 200    // reading a clock
	emitFuel   = 1500   // reading an event
	kvFuel     = 400    // finding a key
	keepFuel   = 1500   // keeping a value
	lookupFuel = 7000   // reading a request
	objectFuel = 3000   // finding and sorting an object
	httpFuel   = 30_000 // reading a request
	sendFuel   = 300_000
)

func copyFuel(bytes int) int64  { return int64(bytes / bytesPerFuel) }
func parseFuel(bytes int) int64 { return int64(bytes) * fuelPerParsed }
func textFuel(chars int) int64  { return int64(chars) * fuelPerChar }
func linesFuel(text []byte) int64 {
	return textFuel(len(text)) + int64(bytes.Count(text, []byte{'\n'})+1)*lineFuel
}

var (
	// ErrFuel is the error of a guest that did more than one event's worth of work in a call.
	ErrFuel = errors.New("out of fuel")
	// ErrTime is the error of a guest that took longer than it may.
	ErrTime = errors.New("out of time")
	// ErrStack is the error of a guest that called too deeply.
	ErrStack = errors.New("its calls are nested too deeply (an endless recursion?)")
)

// tank is the fuel of one instance: the counters that its module was given when it was metered.
type tank struct {
	fuel, stack, mark api.MutableGlobal
	limit             int32 // of stack
	filled            int64 // what there was at first

	slice  int64     // burnt until the next pause, see pause.go
	paused time.Time // when it paused last, or began
	ended  error     // why a pause ended the guest

	deepest int32 // the most stack in use at a pause
}

// nativeStack returns about how many bytes of native stack the guest has: the engine doubles it
// when it does not suffice, and keeps it. A call that is too short for a pause does not get deep.
func (t *tank) nativeStack() uint64 { return 2 * uint64(max(t.deepest, 0)) }

// newTank finds the counters of a metered module, which it always has.
func newTank(m api.Module, metered *meter.Module, filled int64) tank {
	return tank{
		fuel: m.ExportedGlobal(metered.Fuel).(api.MutableGlobal), stack: m.ExportedGlobal(metered.Stack).(api.MutableGlobal),
		mark:  m.ExportedGlobal(metered.Mark).(api.MutableGlobal),
		limit: metered.StackLimit, filled: filled, slice: MaxSlice,
	}
}

// fill is called before each call of the guest.
func (t *tank) fill(fuel int64) {
	t.filled = fuel
	t.fuel.Set(uint64(fuel))
	t.mark.Set(uint64(max(0, fuel-t.slice)))
	t.stack.Set(0)
}

// used returns what was burnt since the tank was filled. What could not be paid was not done.
func (t *tank) used() int64 { return t.filled - max(int64(t.fuel.Get()), 0) }

// charge burns fuel for what the host does on behalf of the guest. If there is not so much, the
// guest ends here.
func (t *tank) charge(fuel int64) {
	left := int64(t.fuel.Get()) - fuel
	t.fuel.Set(uint64(left))
	if left < 0 {
		panic(ErrFuel) //nolint:forbidigo // how wazero unwinds a guest
	}
}

// why returns the reason of a trap that a counter or a pause brought about, or nil.
func (t *tank) why() error {
	switch {
	case t.fuel == nil:
		return nil
	case t.ended != nil:
		return t.ended
	case int64(t.fuel.Get()) < 0:
		return ErrFuel
	case int32(t.stack.Get()) > t.limit:
		return ErrStack
	}
	return nil
}
