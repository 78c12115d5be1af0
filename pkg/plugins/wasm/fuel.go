package wasm

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/meter"
)

// The fuel of host functions, in the units of package meter: about one for each simple instruction, a fifth of a nanosecond. It is set
// by BenchmarkStopped: whatever a guest does for ever, the default fuel is burnt as soon as by a loop, or nearly.
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
	// errFuel is the error of a guest that did more than one event's worth of work in a call.
	errFuel = errors.New("out of fuel")
	// errStack is the error of a guest that called too deeply.
	errStack = errors.New("its calls are nested too deeply (an endless recursion?)")
)

// tank is the fuel of one instance: the counters that its module was given when it was metered.
type tank struct {
	fuel, stack, mark api.MutableGlobal
	limit             int32 // of stack
	filled            int64 // what there was at first
}

// sliceFuel is what a guest burns at most before it pauses, a millisecond or so: Go's garbage collector, which stops all that runs, waits
// for a guest no longer than that. A pause takes a tenth of a microsecond.
const sliceFuel = 5_000_000

// newTank finds the counters of a metered module, which it always has.
func newTank(m api.Module, metered *meter.Module, filled int64) tank {
	return tank{
		fuel: m.ExportedGlobal(metered.Fuel).(api.MutableGlobal), stack: m.ExportedGlobal(metered.Stack).(api.MutableGlobal),
		mark:  m.ExportedGlobal(metered.Mark).(api.MutableGlobal),
		limit: metered.StackLimit, filled: filled,
	}
}

// fill is called before each call of the guest.
func (t *tank) fill(fuel int64) {
	t.filled = fuel
	t.fuel.Set(uint64(fuel))
	t.mark.Set(uint64(max(0, fuel-sliceFuel)))
	t.stack.Set(0)
}

// used returns what was burnt since the tank was filled. What could not be paid was not done.
func (t *tank) used() int64 { return t.filled - max(int64(t.fuel.Get()), 0) }

// charge burns fuel for what the host does on behalf of the guest. If there is not so much, the guest ends here.
func (t *tank) charge(fuel int64) {
	left := int64(t.fuel.Get()) - fuel
	t.fuel.Set(uint64(left))
	if left < 0 {
		panic(errFuel) //nolint:forbidigo // how wazero unwinds a guest
	}
}

// why returns the reason of a trap that a counter brought about, or nil.
func (t *tank) why() error {
	switch {
	case t.fuel == nil:
		return nil
	case int64(t.fuel.Get()) < 0:
		return errFuel
	case int32(t.stack.Get()) > t.limit:
		return errStack
	}
	return nil
}

// burnRate is how much fuel a delta took of late. It follows a rise at once and a fall slowly. It is safe for concurrent use.
type burnRate struct{ rate atomic.Int64 }

// firstDeltas is how many deltas the first call gets at most, before anything is known.
const firstDeltas = 32

// newBurnRate returns the rate at which a call with half of the fuel has firstDeltas deltas.
func newBurnRate(fuel int64) *burnRate {
	b := &burnRate{}
	b.learn(fuel/2, firstDeltas)
	return b
}

func (b *burnRate) learn(used int64, deltas int) {
	now, before := used/int64(deltas), b.rate.Load()
	b.rate.Store(max(now, before-before/8, 1)) // of two that learn at once one is forgotten
}

func (b *burnRate) perDelta() int64 { return b.rate.Load() }
