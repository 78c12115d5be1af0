package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// errLost is wrapped by the error of a call during which the process was lost. The effects of the
// call are unknown.
var errLost = errors.New("the plugin was lost")

// errTooMuch is wrapped by the error of a call whose answer exceeds limits.output.
var errTooMuch = errors.New("too much")

// handler implements [plugins.Handler].
type handler struct {
	s     *settings
	sup   *supervisor
	once  sync.Once
	slots chan struct{} // one element per running call
	alone chan struct{} // a token: its holder may take all slots
}

// Digest implements [plugins.Pinned].
func (h *handler) Digest() string { return strings.ToLower(h.s.SHA256) }

func newHandler(ctx context.Context, s *settings) (*handler, error) {
	sup, err := supervise(ctx, s)
	if err != nil {
		return nil, err
	}
	return &handler{s: s, sup: sup, slots: make(chan struct{}, max(s.env.Workers, 1)), alone: make(chan struct{}, 1)}, nil
}

// Handle implements [plugins.Handler].
func (h *handler) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	batch = h.s.selected.Batch(batch)
	results := make([]plugins.Result, len(batch))
	for from := 0; from < len(batch); {
		n := h.callLength(batch[from:])
		if err := h.deliver(ctx, batch[from:from+n], results[from:from+n]); err != nil {
			return nil, err
		}
		from += n
	}
	return results, nil
}

// callLength returns the number of deltas for one call, at least one.
func (h *handler) callLength(batch []*event.Delta) int {
	size := 0
	for i, d := range batch {
		size += deltaSize(d)
		if i > 0 && (size > int(h.s.Limits.Input) || i == h.s.Limits.Batch) {
			return i
		}
	}
	return len(batch)
}

// deliver passes the deltas to the plugin. If the call fails, it repeats the call in a way that
// finds the faulty delta. The error is that of ctx.
func (h *handler) deliver(ctx context.Context, batch []*event.Delta, results []plugins.Result) error {
	if size := deltaSize(batch[0]); len(batch) == 1 && size > int(h.s.Limits.Input) {
		results[0] = reject(h.named(fmt.Errorf("it has %d bytes, at most %d (limits.input)", size, h.s.Limits.Input)))
		return nil
	}
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := h.call(ctx, batch, results)
	<-h.slots
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	release, stopped := h.exclude(ctx)
	if stopped != nil {
		return stopped
	}
	defer release()
	if errors.Is(err, errLost) {
		// Other calls ran at the same time, so another batch may be faulty. A call alone shows it.
		return h.again(ctx, batch, results)
	}
	return h.split(ctx, batch, results, err)
}

// exclude waits until no other call runs, and prevents new ones until release is called.
func (h *handler) exclude(ctx context.Context) (release func(), err error) {
	select {
	case h.alone <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	taken := 0
	release = func() {
		for range taken {
			<-h.slots
		}
		<-h.alone
	}
	for range cap(h.slots) {
		select {
		case h.slots <- struct{}{}:
			taken++
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

// again passes the deltas to the plugin while no other call runs.
func (h *handler) again(ctx context.Context, batch []*event.Delta, results []plugins.Result) error {
	err := h.call(ctx, batch, results)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return h.split(ctx, batch, results, err)
}

// split halves a failed batch until each faulty delta has failed alone. No other call runs.
func (h *handler) split(ctx context.Context, batch []*event.Delta, results []plugins.Result, err error) error {
	var down *downError
	switch {
	case errors.As(err, &down):
		h.postpone(batch, results, down, down.wait)
		return nil
	case len(batch) == 1:
		results[0] = plugins.Result{Verdict: plugins.Fail, Err: h.named(err)}
		if errors.Is(err, errTooMuch) {
			results[0] = reject(results[0].Err)
		}
		return nil
	}
	half := (len(batch) + 1) / 2
	if err := h.again(ctx, batch[:half], results[:half]); err != nil {
		return err
	}
	return h.again(ctx, batch[half:], results[half:])
}

// call calls the plugin, and again if another process has changed a value of its store meanwhile.
// After an error the call has no effect in the router.
func (h *handler) call(ctx context.Context, batch []*event.Delta, results []plugins.Result) error {
	for n := 0; ; n++ {
		err := h.callOnce(ctx, batch, results)
		if !errors.Is(err, plugins.ErrKVConflict) {
			return err
		}
		if n == plugins.KVRepeats {
			h.postpone(batch, results, err, plugins.RetryAfter(err))
			return nil
		}
	}
}

func (h *handler) callOnce(ctx context.Context, batch []*event.Delta, results []plugins.Result) error {
	p, err := h.sup.get(ctx)
	if err != nil {
		return err
	}
	id, running := p.host.begin(batch)
	defer p.host.end(id)
	answer, err := h.ask(ctx, p, &pluginv1.HandleRequest{Call: id, Deltas: encode(batch)})
	if failed := running.failed(); failed != nil && ctx.Err() == nil {
		h.postpone(batch, results, failed, plugins.RetryAfter(failed))
		return nil
	}
	if err != nil {
		return err
	}
	h.sup.succeeded()
	decoded, err := decode(answer, len(batch), &h.s.Limits)
	if err != nil {
		return err
	}
	done, at := settled(batch, decoded)
	if running.End() && len(done) < len(batch) {
		// It is unknown which delta the writes belong to, so the deltas that are done are passed
		// again.
		h.fill(results, decoded)
		if len(done) == 0 {
			return nil
		}
		return h.repeat(ctx, done, at, results)
	}
	if err := running.Commit(); errors.Is(err, plugins.ErrKVConflict) {
		return err
	} else if plugins.ClassOf(err) == plugins.Postponed {
		h.postpone(batch, results, err, plugins.RetryAfter(err))
		return nil
	} else if err != nil {
		return fmt.Errorf("what the plugin wrote cannot be kept: %w", err)
	}
	h.fill(results, decoded)
	return nil
}

// settled returns the deltas that need no further attempt, and their places in the batch.
func settled(batch []*event.Delta, results []plugins.Result) (done []*event.Delta, at []int) {
	for i, r := range results {
		if r.Verdict.Done() {
			done, at = append(done, batch[i]), append(at, i)
		}
	}
	return done, at
}

// fill enters the answers of the plugin into the results.
func (h *handler) fill(results, answers []plugins.Result) {
	for i, r := range answers {
		if r.Err != nil {
			r.Err = h.named(r.Err)
		}
		results[i] = r
	}
}

// repeat passes some deltas of a call again, whose writes were dropped because of other deltas. at
// are their places in the results.
func (h *handler) repeat(ctx context.Context, deltas []*event.Delta, at []int, results []plugins.Result) error {
	again := make([]plugins.Result, len(deltas))
	if err := h.call(ctx, deltas, again); err != nil {
		return err
	}
	for i, r := range again {
		results[at[i]] = r
	}
	return nil
}

// ask sends the request, and decides whether an error ends the process.
func (h *handler) ask(ctx context.Context, p *process, request *pluginv1.HandleRequest) (*pluginv1.HandleResponse, error) {
	bounded, cancel := context.WithTimeout(ctx, h.s.Limits.Timeout)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel) //nolint:contextcheck // when the process is ended, so is the call
	defer stop()
	answer, err := p.api.Handle(bounded, request)
	if err == nil {
		return answer, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	deadline, _ := bounded.Deadline()
	switch code := status.Code(err); {
	// The plugin has its own timer, which may expire before ours.
	case errors.Is(bounded.Err(), context.DeadlineExceeded), code == codes.DeadlineExceeded && !time.Now().Before(deadline):
		p.lose("timeout", fmt.Errorf("a call took longer than %v (limits.timeout)", h.s.Limits.Timeout))
	case code == codes.Unavailable || code == codes.Canceled || bounded.Err() != nil:
		h.unreachable(p, err)
	case code == codes.ResourceExhausted:
		h.sup.succeeded()
		return nil, fmt.Errorf("%w: %w (limits.output is %d)", errTooMuch, cleanStatus(err), h.s.Limits.Output)
	default:
		h.sup.succeeded()
		return nil, fmt.Errorf("the plugin fails: %w", cleanStatus(err))
	}
	<-p.lost
	return nil, fmt.Errorf("%w: %w", errLost, p.err)
}

// unreachable gives up a process without a connection. It waits a moment first, because the process
// has usually ended, and its exit status is the better reason.
func (h *handler) unreachable(p *process, err error) {
	timer := time.NewTimer(child.DrainTime)
	defer timer.Stop()
	select {
	case <-p.lost:
	case <-timer.C:
		p.lose("connection", cleanStatus(err))
	}
}

// postpone postpones deltas, because the handler cannot take them at the moment.
func (h *handler) postpone(batch []*event.Delta, results []plugins.Result, err error, wait time.Duration) {
	err = plugins.Postpone(h.named(err), wait)
	for i := range batch {
		results[i] = plugins.Result{Verdict: plugins.Retry, Err: err}
	}
}

func (h *handler) named(err error) error { return fmt.Errorf("process %q: %w", h.s.env.Name, err) }

func reject(err error) plugins.Result {
	return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(err)}
}

// Close implements [plugins.Handler].
func (h *handler) Close(ctx context.Context) error {
	var err error
	h.once.Do(func() {
		err = errors.Join(h.sup.close(ctx), h.s.program.Close())
		h.s.lines.Report()
	})
	if err != nil {
		return fmt.Errorf("process %q: %w", h.s.env.Name, err)
	}
	return nil
}
