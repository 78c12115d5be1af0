package host

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/meter"
)

// Fuel limits instructions, but not time: a unit takes a fifth of a nanosecond in most code, and
// about 250 ns in a chain of loads that miss all caches. So a guest pauses whenever it has used a
// slice of fuel. In a pause the guest leaves compiled code, and Go's garbage collector can stop it.
// The host checks the clock, ends a guest that exceeds its time, and sets the next slice.
//
// A guest may change from the fastest to the slowest code at any time, so the largest slice and the
// code up to the next pause, at most 7,000 units, determine the maximum wait of Go for it: 10 ms at
// 250 ns. A pause takes a tenth of a microsecond, about a hundredth of a slice of fast code.
const (
	MaxSlice  = 36_000
	minSlice  = 1000
	sliceTime = time.Millisecond
)

// nextSlice returns the next slice for a duration of about sliceTime, from the duration of the last
// slice.
func nextSlice(slice int64, took time.Duration) int64 {
	if took > sliceTime {
		return max(minSlice, slice*int64(sliceTime)/int64(took))
	}
	return min(MaxSlice, 2*slice)
}

// pause is called by a guest with its remaining fuel. It returns the fuel up to the next pause, or
// ends the guest.
func (s *Scope) pause(ctx context.Context, fuel int64) (slice int64) {
	t, now := &s.tank, s.host.clock.Now()
	t.deepest = max(t.deepest, int32(t.stack.Get()))
	switch {
	case now.After(s.deadline):
		t.ended = ErrTime
	case ctx.Err() != nil:
		t.ended = ctx.Err()
	default:
		t.slice = nextSlice(t.slice, now.Sub(t.paused))
		t.paused = now
		return min(fuel, t.slice)
	}
	panic(t.ended) //nolint:forbidigo // how wazero unwinds a guest
}

// pauseFunc is the pause function for guests. It implements [api.GoModuleFunction].
type pauseFunc struct{}

func (pauseFunc) Call(ctx context.Context, _ api.Module, stack []uint64) {
	stack[0] = uint64(scopeOf(ctx).pause(ctx, int64(stack[0])))
}

// ProvidePauses adds the pause function to the runtime, and returns a reference to it.
func ProvidePauses(ctx context.Context, r wazero.Runtime) (ref uint64, err error) {
	i64 := types("I")
	b := r.NewHostModuleBuilder(meter.PauseModule).NewFunctionBuilder().WithGoModuleFunction(pauseFunc{}, i64, i64).Export(meter.PauseFunction)
	if _, err := b.Instantiate(ctx); err != nil {
		return 0, fmt.Errorf("pauses: %w", err)
	}
	helper, err := r.InstantiateWithConfig(ctx, meter.PauseHelper(), wazero.NewModuleConfig().WithName(""))
	if err != nil {
		return 0, fmt.Errorf("pauses: %w", err)
	}
	refs, err := helper.ExportedFunction(meter.PauseRef).Call(ctx)
	if err != nil {
		return 0, fmt.Errorf("pauses: %w", err)
	}
	return refs[0], nil
}
