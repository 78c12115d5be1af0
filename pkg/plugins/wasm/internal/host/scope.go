package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/limits"
)

// Scope is what the host functions know of the guest that calls them, and what its present call has
// done so far. Each instance has one, used by one goroutine at a time: the host functions find it
// in their context.
//
// What a call emits and writes is kept here, and takes effect when the call has succeeded. After a
// trap, an exit, a limit or a malformed answer nothing of it is left.
type Scope struct {
	host   *Host
	limits *limits.Limits
	clock  clock
	tank   tank             // how much the guest may do yet
	output [2]*lines.Writer // stdout and stderr

	batch    []*event.Delta // of the call; empty while the instance starts
	deadline time.Time      // for the call, by the clock of the host
	timeout  time.Duration  // for what a host function waits for
	mayWait  time.Duration  // for the rates of hosts, beyond that
	overRate time.Duration  // how long it takes until a host may be asked that was not; 0: all were
	emitted  [][]plugins.Emit
	volumes  []int // bytes emitted, by delta
	volume   int   // bytes emitted
	tooMuch  bool  // more was emitted than a call may, by several deltas
	overlay  *kv.Overlay
	kept     kept
	random   stream
	hostCall hostCall // the one that is under way
}

type scopeKey struct{}

// scopeOf returns the scope of the guest that calls a host function; nil only if the host has a
// bug.
func scopeOf(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// NewScope returns the scope of a new instance.
func (r *Host) NewScope(ctx context.Context) *Scope {
	logging := context.WithoutCancel(ctx)
	return &Scope{
		host: r, limits: r.limits, clock: clock{mono: 1}, overlay: kv.NewOverlay(r.kv, r.clock, int64(r.limits.KV)),
		output: [2]*lines.Writer{r.log.Writer(logging, "stdout", slog.LevelInfo), r.log.Writer(logging, "stderr", slog.LevelWarn)},
	}
}

// Flush logs what the guest has written without an end of line.
func (s *Scope) Flush() {
	for _, w := range s.output {
		w.Flush()
	}
}

// Used returns the fuel that the present call has burnt, or the last one.
func (s *Scope) Used() int64 { return s.tank.used() }

// NativeStack returns about how many bytes of native stack the guest has.
func (s *Scope) NativeStack() uint64 { return s.tank.nativeStack() }

// Ended returns why a counter or a pause ended the guest: [ErrFuel], [ErrTime], [ErrStack], the
// error of a context, or nil.
func (s *Scope) Ended() error { return s.tank.why() }

// OverRate returns how long it takes until a host may be asked that the call could not ask for its
// rate. 0: it could ask all.
func (s *Scope) OverRate() time.Duration { return s.overRate }

// Open finds the fuel of a guest, before anything of it has run.
func (s *Scope) Open(m api.Module, metered *meter.Module) {
	s.tank = newTank(m, metered, int64(s.limits.InitFuel))
	s.tank.paused = s.host.clock.Now()
}

// Start begins the start of an instance, which ends with End. The guest may use the host functions
// and write, but neither emit nor look up: it must come out the same whenever an instance is
// needed.
func (s *Scope) Start(ctx context.Context) context.Context {
	return s.begin(ctx, nil, s.limits.InitTimeout)
}

// Commit makes the writes take effect: of a start, or of a call that [Scope.Handle] has ended.
func (s *Scope) Commit() error {
	if err := s.overlay.Commit(); err != nil {
		return fmt.Errorf("what the guest wrote cannot be kept: %w", err)
	}
	return nil
}

// Session is a guest that batches can be given to.
type Session interface {
	// Handle gives a batch, which takes at most size bytes, to the guest and returns one result per
	// delta, or none at all if every delta is ok. After an error other than [abi.ErrTooMuch] the
	// instance is in no known state.
	Handle(ctx context.Context, batch []*event.Delta, size int) ([]plugins.Result, error)
}

// Handle lets a session handle a batch. What the guest did meanwhile takes effect only if that
// succeeds.
func (s *Scope) Handle(ctx context.Context, batch []*event.Delta, size int, to Session) ([]plugins.Result, error) {
	ctx = s.begin(ctx, batch, s.limits.Timeout)
	s.tank.fill(int64(s.limits.Fuel))
	defer s.End()
	results, err := to.Handle(ctx, batch, size)
	switch {
	case err != nil:
		return results, err
	case s.tooMuch:
		return nil, fmt.Errorf("%w: more than %d bytes were emitted (limits.output)", abi.ErrTooMuch, s.limits.Output)
	}
	if err := s.Commit(); err != nil {
		return nil, err
	}
	if results == nil && len(s.emitted) > 0 {
		results = make([]plugins.Result, len(batch))
	}
	s.addEmitted(results)
	return results, nil
}

func (s *Scope) begin(ctx context.Context, batch []*event.Delta, timeout time.Duration) context.Context {
	s.batch = batch
	now := s.host.clock.Now()
	all := timeout * time.Duration(max(1, len(batch)))
	s.timeout, s.deadline, s.mayWait, s.overRate = timeout, now.Add(all), all, 0
	s.tank.paused = now
	s.clock.stale = true
	return context.WithValue(ctx, scopeKey{}, s)
}

// patience bounds what one host function waits for: by the time for one delta, so that a batch does
// not wait for a host that hangs as long as all its deltas may take, and by what is left of the
// call's time.
func (s *Scope) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(s.timeout, s.deadline.Sub(s.host.clock.Now())))
}

// End forgets the call.
func (s *Scope) End() {
	clear(s.emitted)
	clear(s.volumes)
	s.batch, s.emitted, s.volumes, s.volume, s.tooMuch = nil, s.emitted[:0], s.volumes[:0], 0, false
	s.overlay.Reset()
	s.kept = kept{}
	s.random.reset()
}

// kept is the answer of a read that did not fit into the guest's buffer: the guest asks again with
// a larger one, and must get the same, not have the read done twice.
type kept struct {
	function string
	request  string
	answer   []byte
}

// reply writes what a function answers to a request into the guest's buffer, if it fits, and
// returns its length. make is called unless the answer is kept from the time when it did not fit; a
// negative status is returned as it is.
func (s *Scope) reply(c *hostCall, function string, request []byte, at, limit uint32, answer func() ([]byte, int32)) int32 {
	text := s.kept.answer
	if s.kept.function != function || s.kept.request != string(request) {
		var status int32
		if text, status = answer(); status < 0 {
			return status
		}
	}
	s.kept = kept{}
	c.charge(copyFuel(len(text)))
	if uint64(len(text)) > uint64(limit) {
		s.kept = kept{function, string(request), text}
		return int32(len(text)) //nolint:gosec // bounded by the functions
	}
	c.charge(copyFuel(len(text)))
	if !c.memory.Write(at, text) {
		return abi.StatusInvalid
	}
	return int32(len(text)) //nolint:gosec // bounded by the functions
}
