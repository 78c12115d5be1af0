package wasm

import (
	"context"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/lines"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// scope is what the host functions know of the guest that calls them, and what its present call has done so far. Each instance has
// one, used by one goroutine at a time: the host functions find it in their context.
//
// What a call emits and writes is kept here, and takes effect when the call has succeeded. After a trap, an exit, a limit or a malformed
// answer nothing of it is left.
type scope struct {
	rights *rights
	limits *Limits
	clock  clock
	tank   tank             // how much the guest may do yet
	output [2]*lines.Writer // stdout and stderr

	batch    []*event.Delta // of the call; empty while the instance starts
	deadline time.Time      // for what the host functions wait for
	emitted  [][]plugins.Emit
	volumes  []int // bytes emitted, by delta
	volume   int   // bytes emitted
	tooMuch  bool  // more was emitted than a call may, by several deltas
	overlay  overlay
	kept     kept
	random   stream
	hostCall hostCall // the one that is under way
}

type scopeKey struct{}

// scopeOf returns the scope of the guest that calls a host function; nil only if the host has a bug.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

func newScope(r *rights, l *Limits) *scope {
	return &scope{rights: r, limits: l, clock: clock{mono: 1}}
}

// open finds the fuel of a guest, the first time that it calls a host function or when it was instantiated: a start section runs in between.
func (s *scope) open(e *engine, m api.Module) {
	if s.tank.fuel == nil {
		s.tank = newTank(m, e.metered, int64(s.limits.InitFuel))
	}
}

// start makes an instance, in which init may use the host functions too. It may write, but neither emit nor look up: it must come out the
// same whenever an instance is needed.
func (s *scope) start(ctx context.Context, init func(context.Context) error) error {
	ctx = s.begin(ctx, nil, s.limits.InitTimeout)
	defer s.end()
	if err := init(ctx); err != nil {
		return err
	}
	return s.overlay.commit(s.rights)
}

// handle lets a session handle a batch. What the guest did meanwhile takes effect only if that succeeds.
func (s *scope) handle(ctx context.Context, batch []*event.Delta, size int, to session) ([]plugins.Result, error) {
	ctx = s.begin(ctx, batch, s.limits.Timeout*time.Duration(len(batch)))
	s.tank.fill(int64(s.limits.Fuel))
	defer s.end()
	results, err := to.handle(ctx, batch, size)
	switch {
	case err != nil:
		return results, err
	case s.tooMuch:
		return nil, fmt.Errorf("%w: more than %d bytes were emitted (limits.output)", errTooMuch, s.limits.Output)
	}
	if err := s.overlay.commit(s.rights); err != nil {
		return nil, err
	}
	if results == nil && len(s.emitted) > 0 {
		results = make([]plugins.Result, len(batch))
	}
	s.addEmitted(results)
	return results, nil
}

func (s *scope) begin(ctx context.Context, batch []*event.Delta, timeout time.Duration) context.Context {
	s.batch = batch
	s.deadline = time.Now().Add(timeout)
	s.clock.stale = true
	return context.WithValue(ctx, scopeKey{}, s)
}

// end forgets the call.
func (s *scope) end() {
	clear(s.emitted)
	clear(s.volumes)
	s.batch, s.emitted, s.volumes, s.volume, s.tooMuch = nil, s.emitted[:0], s.volumes[:0], 0, false
	s.overlay.reset()
	s.kept = kept{}
	s.random.reset()
}

// kept is the answer of a read that did not fit into the guest's buffer: the guest asks again with a larger one, and must get the same,
// not have the read done twice.
type kept struct {
	function string
	request  string
	answer   []byte
}

// reply writes what a function answers to a request into the guest's buffer, if it fits, and returns its length. make is called
// unless the answer is kept from the time when it did not fit; a negative status is returned as it is.
func (s *scope) reply(c *hostCall, function string, request []byte, at, limit uint32, answer func() ([]byte, int32)) int32 {
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
		return statusInvalid
	}
	return int32(len(text)) //nolint:gosec // bounded by the functions
}
