package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// profiler divides the fuel of a call among the functions of a guest. It reads the fuel whenever a
// function begins or ends, so the sum is exactly the fuel of the call. It implements
// [experimental.FunctionListenerFactory] and [experimental.FunctionListener].
type profiler struct {
	functions int // of the module without the added ones

	used  func() int64 // the fuel of the call; nil: no call is measured
	last  int64        // the fuel when a function began or ended last
	stack []activation
	by    map[api.FunctionDefinition]*callrecord.Function
	place []string // the functions that a trap has ended
}

// activation is a function that has begun and not ended.
type activation struct {
	of    api.FunctionDefinition
	again bool // it only begins anew after a pause, see package meter
}

// ofHost is the name for fuel that no function of the guest has used.
const ofHost = "(the router)"

// NewFunctionListener implements [experimental.FunctionListenerFactory]. Functions of package meter
// are part of those that call them.
func (p *profiler) NewFunctionListener(f api.FunctionDefinition) experimental.FunctionListener {
	if f.ModuleName() == meter.PauseModule || f.GoFunction() == nil && int(f.Index()) >= p.functions {
		return nil
	}
	return p
}

// Before implements [experimental.FunctionListener].
func (p *profiler) Before(_ context.Context, _ api.Module, f api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	if p.used == nil {
		p.stack = append(p.stack, activation{of: f})
		return
	}
	n := len(p.stack)
	// A call costs fuel.
	again := n > 0 && p.stack[n-1].of == f && p.used() == p.last
	p.count()
	p.stack = append(p.stack, activation{of: f, again: again})
	if !again {
		p.of(f).Calls++
	}
}

// After implements [experimental.FunctionListener].
func (p *profiler) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {
	p.count()
	p.stack = p.stack[:max(0, len(p.stack)-1)]
}

// longestPlace bounds the functions of a place.
const longestPlace = 50

// Abort implements [experimental.FunctionListener].
func (p *profiler) Abort(_ context.Context, _ api.Module, f api.FunctionDefinition, _ error) {
	p.count()
	var ended activation
	for n := len(p.stack); n > 0 && ended.of != f; n-- { // a function of the host is not reported
		p.stack, ended = p.stack[:n-1], p.stack[n-1]
	}
	if p.used != nil && !ended.again && len(p.place) < longestPlace {
		p.place = append(p.place, functionName(f))
	}
}

// count adds the fuel since the last count to the running function.
func (p *profiler) count() {
	if p.used == nil {
		return
	}
	var running api.FunctionDefinition
	if n := len(p.stack); n > 0 {
		running = p.stack[n-1].of
	}
	now := p.used()
	p.of(running).Fuel += now - p.last
	p.last = now
}

// of returns the entry of a function. nil is the router.
func (p *profiler) of(f api.FunctionDefinition) *callrecord.Function {
	entry := p.by[f]
	if entry == nil {
		entry = &callrecord.Function{Name: ofHost}
		if f != nil {
			entry.Name = functionName(f)
		}
		p.by[f] = entry
	}
	return entry
}

const longestFunction = 200 // bytes of a name

// functionName returns the name of a function for people.
func functionName(f api.FunctionDefinition) string {
	name := f.Name()
	switch {
	case name == "" && len(f.ExportNames()) > 0:
		name = f.ExportNames()[0]
	case name == "":
		name = "function " + strconv.FormatUint(uint64(f.Index()), 10)
	}
	if f.GoFunction() != nil {
		name = f.ModuleName() + "." + name
	}
	return printable.Clean(name, longestFunction)
}

// sorted returns the functions that used fuel, those with the most fuel first.
func (p *profiler) sorted() []callrecord.Function {
	var all []callrecord.Function
	for _, f := range slices.Collect(maps.Values(p.by)) {
		if f.Fuel > 0 || f.Calls > 0 {
			all = append(all, *f)
		}
	}
	slices.SortFunc(all, func(a, b callrecord.Function) int {
		return cmp.Or(cmp.Compare(b.Fuel, a.Fuel), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Profile passes a batch to the instance like Handle, and measures the fuel of each function. The
// engine was made for a replay.
func (in *Instance) Profile(ctx context.Context, batch []*event.Delta, size int, o *callrecord.Outcome) ([]plugins.Result, error) {
	p := in.engine.profiler
	p.used, p.last, p.by = in.scope.Used, 0, make(map[api.FunctionDefinition]*callrecord.Function)
	results, _, err := in.Handle(ctx, batch, size)
	p.count()
	p.used = nil
	o.Fuel, o.FuelLimit, o.Place, o.Functions = in.Used(), int64(in.engine.Limits.Fuel), p.place, p.sorted()
	return results, err
}
