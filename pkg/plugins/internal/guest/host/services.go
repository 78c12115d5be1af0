package host

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// Services are the host functions of a guest that passes texts instead of addresses, as a script
// does. A function returns a negative status of package abi instead of an answer. It may end the
// guest by a panic, as all host functions do.
type Services struct{ scope *Scope }

// ServicesOf returns the services for the guest that calls a host function. It returns false only
// after a bug of the host.
func ServicesOf(ctx context.Context) (Services, bool) {
	s := scopeOf(ctx)
	return Services{s}, s != nil
}

// Called charges for a call with some bytes of arguments. Every host function begins with it.
func (s Services) Called(bytes int) { s.scope.tank.charge(callFuel + copyFuel(bytes)) }

// Log logs a line: level 0 is debug, 1 info, 2 warn, 3 error.
func (s Services) Log(ctx context.Context, level uint32, text string) {
	s.scope.say(ctx, min(level, 3), []byte(text))
}

// Lookup answers a request for objects.
func (s Services) Lookup(ctx context.Context, request string) ([]byte, int32) {
	switch {
	case len(s.scope.host.allow.Lookup) == 0:
		return nil, abi.StatusDenied
	case len(request) > maxLookupRequest:
		return nil, abi.StatusInvalid
	}
	s.scope.tank.charge(lookupFuel + parseFuel(len(request)))
	return s.scope.find(ctx, request)
}

// HTTP sends a request.
func (s Services) HTTP(ctx context.Context, request string) ([]byte, int32) {
	switch {
	case s.scope.host.http == nil:
		return nil, abi.StatusDenied
	case len(request) > maxRequest:
		return nil, abi.StatusQuota
	}
	s.scope.tank.charge(httpFuel + parseFuel(len(request)))
	return s.scope.request(ctx, request)
}

// Load returns a value of the handler's store.
func (s Services) Load(key string) ([]byte, int32) {
	if status := s.key(key); status < 0 {
		return nil, status
	}
	return s.load(key)
}

// Store keeps a value in the handler's store, for ttl milliseconds unless that is 0.
func (s Services) Store(key, value string, ttl int64) int32 {
	if status := s.key(key); status < 0 {
		return status
	}
	if ttl < 0 {
		return abi.StatusInvalid
	}
	if int64(len(value)) > int64(s.scope.limits.KV) {
		return abi.StatusQuota // avoid the copy
	}
	return s.store(key, []byte(value), ttl)
}

// Remove removes a value from the handler's store.
func (s Services) Remove(key string) int32 {
	if status := s.key(key); status < 0 {
		return status
	}
	return s.remove(key)
}

// Settle ends a delta of the call, for a session that passes one delta after another: the writes of
// a delta with the verdict retry or fail are dropped, and it is postponed if it failed after a
// request without a response.
func (s Services) Settle(r *plugins.Result) {
	if !r.Verdict.Done() {
		s.scope.overlay.Undo()
		s.scope.excuse(r)
	}
	s.scope.overlay.Keep()
	s.scope.settled, s.scope.unreached = true, nil
}

// key checks the grant and a key.
func (s Services) key(key string) int32 {
	switch {
	case !s.scope.host.allow.KV:
		return abi.StatusDenied
	case key == "", len(key) > kv.MaxKey:
		return abi.StatusInvalid
	}
	s.scope.tank.charge(kvFuel + 2*int64(len(key)))
	return abi.StatusOK
}

// Setting returns a number that the guest gets from the router, and that may change.
func (s Services) Setting(name string, value int64) int64 {
	return s.scope.answers.number(name, func() int64 { return value })
}

// Seed returns 16 random bytes in hexadecimal digits.
func (s Services) Seed() string {
	var seed [16]byte
	s.scope.tank.charge(s.scope.randomFuel(len(seed)))
	s.scope.fillRandom(seed[:])
	return hex.EncodeToString(seed[:])
}

// answers are what the router answers to a guest, which it records. In a replay they are recorded
// ones.
type answers struct {
	callrecord.Recorder

	replay *callrecord.Replay // nil: no replay
	tank   *tank
	kept   kept
}

// errLeft ends a guest in a replay. The replay knows the reason.
var errLeft = errors.New("the guest does not repeat the recorded call")

// begin begins a call.
func (a *answers) begin(c *clock, batch []*event.Delta, size int) {
	if a.replay != nil {
		at := a.replay.Begin()
		c.wall, c.mono = at.Wall, at.Monotonic
		return
	}
	a.Begin(batch, size, callrecord.Clock{Wall: c.wall, Monotonic: c.mono})
}

// obtain returns the answer to a request of the guest, which ask finds.
func (a *answers) obtain(function, request string, ask func() ([]byte, int32)) ([]byte, int32) {
	if a.replay != nil {
		answer := a.repeat(function, request)
		return answer.Data, answer.Status
	}
	at, before := a.Add(function, request), a.tank.left()
	data, status := ask()
	a.Set(at, status, before-a.tank.left(), 0, data)
	return data, status
}

// number does the same for a number, which costs no fuel.
func (a *answers) number(function string, ask func() int64) int64 {
	if a.replay != nil {
		return a.repeat(function, "").Value
	}
	at, value := a.Add(function, ""), ask()
	a.Set(at, abi.StatusOK, 0, value, nil)
	return value
}

// repeat returns a recorded answer, which uses the same fuel again, or ends the guest.
func (a *answers) repeat(function, request string) callrecord.Answer {
	answer, ok := a.replay.Answer(function, callrecord.Checksum(request))
	switch {
	case !ok:
		panic(errLeft) //nolint:forbidigo // how wazero unwinds a guest
	case answer.Status == callrecord.Unanswered:
		a.tank.charge(a.tank.left() + 1)
	}
	a.tank.charge(answer.Fuel)
	return answer
}
