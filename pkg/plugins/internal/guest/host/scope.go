package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/files"
)

// Scope is the state of one guest for its host functions, which find it in their context. Each
// instance has one. One goroutine uses it at a time.
//
// The events and writes of a call are collected here. They take effect when the call has succeeded.
// After a trap, an exit, a reached limit or a malformed answer they are discarded, and so are those
// of a delta with the verdict retry or fail.
type Scope struct {
	host   *Host
	limits *abi.Limits
	clock  clock
	tank   tank // the remaining fuel
	fds    descriptors

	batch    []*event.Delta // of the call; empty while the instance starts
	deadline time.Time      // of the call, by the clock of the host
	timeout  time.Duration  // the maximum wait of a host function
	mayWait  time.Duration  // the maximum additional wait for rates
	overRate time.Duration  // the wait for a request that was not sent; 0: all were sent
	// unanswered is the error of a look-up, which postpones the deltas of the call.
	unanswered error
	emitted    [][]plugins.Emit
	volumes    []int // bytes emitted, by delta
	volume     int   // bytes emitted
	tooMuch    bool  // the deltas together exceed the output of a call
	outcome
	random   stream
	answers  answers
	hostCall hostCall // the running one
}

// outcome has the end of a call, and the writes of its deltas.
type outcome struct {
	answered bool // the guest has answered the call
	overlay  *kv.Overlay
	settled  bool // the session says which delta has written what, see [Services.Settle]
	// unreached is the error of a request without a response, which postpones the failed deltas of
	// the call; nil: there was none, or Settle has dealt with it.
	unreached error
	outage    error // the last one with which a delta was postponed
}

// ErrMixed is the error of a call that has written values, and has answered some of its deltas with
// retry or fail. These results hold. The writes are dropped, because it is unknown which delta they
// belong to: the other deltas must be passed again, without these.
var ErrMixed = errors.New("the guest has written values, and some deltas of the call have failed")

// undone returns the number of deltas whose writes must be dropped and have not been.
func (o *outcome) undone(results []plugins.Result) (n int) {
	if o.settled {
		return 0
	}
	for i := range results {
		if !results[i].Verdict.Done() {
			n++
		}
	}
	return n
}

// excuse postpones a failed delta after a request without a response: the delta is not at fault.
func (o *outcome) excuse(r *plugins.Result) {
	if o.unreached == nil || r.Verdict.Done() || plugins.ClassOf(r.Err) == plugins.Rejected {
		return
	}
	o.outage = o.unreached
	err, after := o.unreached, time.Duration(0)
	if r.Err != nil {
		err, after = fmt.Errorf("%w: %w", o.unreached, r.Err), plugins.RetryAfter(r.Err)
	}
	*r = plugins.Result{Verdict: plugins.Retry, Err: plugins.Postpone(err, after)}
}

// Outage returns the error of a request without a response in the last call, for which a delta of
// the call was postponed, or which has ended the guest. nil: there was none.
func (o *outcome) Outage() error {
	if o.outage == nil && !o.answered {
		return o.unreached
	}
	return o.outage
}

// descriptors are the files of a guest.
type descriptors struct {
	output  [2]*lines.Writer // stdout and stderr in the log
	console Console          // stdin and stdout of a command; nil: stdin is empty, and stdout is logged
	files   *files.Table     // nil: none
}

var errLookup = errors.New("a look-up of the guest has no answer")

type scopeKey struct{}

// scopeOf returns the scope of the guest that calls a host function. It returns nil only after a
// bug of the host.
func scopeOf(ctx context.Context) *Scope {
	s, _ := ctx.Value(scopeKey{}).(*Scope)
	return s
}

// NewScope returns the scope of a new instance.
func (r *Host) NewScope(ctx context.Context) *Scope {
	logging := context.WithoutCancel(ctx)
	s := &Scope{
		host: r, limits: r.limits, clock: clock{mono: 1}, outcome: outcome{overlay: kv.NewOverlay(r.kv, r.clock, int64(r.limits.KV))},
		fds: descriptors{output: [2]*lines.Writer{r.log.Writer(logging, "stdout", slog.LevelInfo), r.log.Writer(logging, "stderr", slog.LevelWarn)}},
	}
	s.answers = answers{replay: r.replay, tank: &s.tank}
	if r.program != nil && r.program.Files != nil {
		s.fds.files = files.NewTable(r.program.Files)
	}
	return s
}

// Flush logs output without a line end.
func (s *Scope) Flush() {
	for _, w := range s.fds.output {
		w.Flush()
	}
}

// Recorder has the records of calls.
func (s *Scope) Recorder() *callrecord.Recorder { return &s.answers.Recorder }

// Used returns the fuel of the current or last call.
func (s *Scope) Used() int64 { return s.tank.used() }

// NativeStack returns the approximate size of the guest's native stack in bytes.
func (s *Scope) NativeStack() uint64 { return s.tank.nativeStack() }

// Ended returns the error with which a counter or a pause ended the guest: [ErrFuel], [ErrTime],
// [ErrStack], the error of a context, or nil.
func (s *Scope) Ended() error { return s.tank.why() }

// OverRate returns the time until a request is possible that exceeded a host's rate in the call. 0:
// there was none.
func (s *Scope) OverRate() time.Duration { return s.overRate }

// Answered reports whether the guest has answered the last call, so that its state is defined.
func (s *Scope) Answered() bool { return s.answered }

// Open finds the fuel counters of a guest before any of its code runs.
func (s *Scope) Open(m api.Module, metered *meter.Module) {
	s.tank = newTank(m, metered)
	s.tank.fill(int64(s.limits.InitFuel))
	s.tank.paused = s.host.clock.Now()
}

// Start begins the start of an instance, which ends with End. The guest may call host functions and
// write values, but neither emit nor look up: its state must not depend on the time of the start.
func (s *Scope) Start(ctx context.Context) context.Context {
	return s.begin(ctx, nil, s.limits.InitTimeout)
}

// Commit applies the writes of a start, or of a call after [Scope.Conclude].
func (s *Scope) Commit() error {
	if err := s.overlay.Commit(); err != nil {
		return fmt.Errorf("the values of the guest cannot be stored: %w", err)
	}
	return nil
}

// Finish begins the end of a guest that is still running. It ends with End.
func (s *Scope) Finish(ctx context.Context) context.Context {
	ctx = s.begin(context.WithoutCancel(ctx), nil, s.limits.Timeout)
	s.tank.fill(int64(s.limits.Fuel))
	return ctx
}

// Begin begins a call of the guest with a batch of a maximum size in bytes. It ends with Conclude
// and then End.
func (s *Scope) Begin(ctx context.Context, batch []*event.Delta, size int) context.Context {
	ctx = s.begin(ctx, batch, s.limits.Timeout)
	s.answers.begin(&s.clock, batch, size)
	s.tank.fill(int64(s.limits.Fuel))
	return ctx
}

// Conclude takes the answer of the guest to the batch, one result per delta, or none if every delta
// is ok. It returns the results with the effects of the guest: these are kept only if the call
// succeeds.
func (s *Scope) Conclude(results []plugins.Result, err error) ([]plugins.Result, error) {
	s.answered = err == nil
	switch {
	case s.unanswered != nil:
		return nil, fmt.Errorf("%w: %w", errLookup, s.unanswered)
	case err != nil:
		return results, err
	case s.tooMuch:
		return nil, fmt.Errorf("%w: more than %d bytes were emitted (limits.output)", abi.ErrTooMuch, s.limits.Output)
	}
	if results == nil && len(s.emitted) > 0 {
		results = make([]plugins.Result, len(s.batch))
	}
	s.addEmitted(results)
	for i := range results {
		s.excuse(&results[i])
	}
	if undone := s.undone(results); undone > 0 && s.overlay.End() {
		if undone < len(s.batch) {
			return results, ErrMixed
		}
		return results, nil // without its writes
	}
	if err := s.Commit(); err != nil {
		return nil, err
	}
	return results, nil
}

func (s *Scope) begin(ctx context.Context, batch []*event.Delta, timeout time.Duration) context.Context {
	s.batch = batch
	now := s.host.clock.Now()
	all := timeout * time.Duration(max(1, len(batch)))
	s.timeout, s.deadline, s.mayWait, s.overRate = timeout, now.Add(all), all, 0
	s.unanswered, s.outcome = nil, outcome{overlay: s.overlay}
	s.tank.paused = now
	s.clock.stale = true
	return context.WithValue(ctx, scopeKey{}, s)
}

// patience limits the wait of one host function. The limit is the time for one delta, so that a
// host that hangs does not use the time of the whole batch, and at most the remaining time of the
// call.
func (s *Scope) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, min(s.timeout, s.deadline.Sub(s.host.clock.Now())))
}

// End clears the state of the call.
func (s *Scope) End() {
	clear(s.emitted)
	clear(s.volumes)
	s.batch, s.emitted, s.volumes, s.volume, s.tooMuch = nil, s.emitted[:0], s.volumes[:0], 0, false
	s.overlay.Reset()
	s.answers.kept = kept{}
	s.random.reset()
}

// kept is the answer of a read that exceeded the guest's buffer. The guest asks again with a larger
// buffer, and must get the same answer without a second read.
type kept struct {
	function string
	request  string
	answer   []byte
}

// reply writes the answer of a function to a request into the guest's buffer, if it fits, and
// returns its length. It calls answer unless it has kept the answer. It returns a negative status
// of answer unchanged.
func (s *Scope) reply(c *hostCall, function string, request []byte, at, limit uint32, answer func() ([]byte, int32)) int32 {
	text := s.answers.kept.answer
	if s.answers.kept.function != function || s.answers.kept.request != string(request) {
		var status int32
		if text, status = answer(); status < 0 {
			return status
		}
	}
	s.answers.kept = kept{}
	c.charge(copyFuel(len(text)))
	if uint64(len(text)) > uint64(limit) {
		s.answers.kept = kept{function, string(request), text}
		return int32(len(text)) //nolint:gosec // bounded by the functions
	}
	c.charge(copyFuel(len(text)))
	if !c.memory.Write(at, text) {
		return abi.StatusInvalid
	}
	return int32(len(text)) //nolint:gosec // bounded by the functions
}
