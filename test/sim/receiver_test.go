package sim_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// trouble is what a sink or a handler has.
type trouble int

const (
	healthy trouble = iota
	refusing
	blocked
	slow
	poisoned // some events are rejected for good
	forgetful
	picky    // of several events only the first is taken
	panicing // the sink's or handler's own mistake
	troubles
)

// delivery is what a sink took.
type delivery struct {
	life             int
	at               time.Time
	order            int // how many moments of the cluster there were
	route, sink      string
	name, op         string
	uid, n           int
	id               string
	doubtful         bool // the router heard that it failed
	initial, flagged bool
	seen             time.Time
	repeat           bool
}

// rejection is what was refused for good.
type rejection struct {
	route, sink string // sink is empty: by the handler
	uid         int
	op          string
}

// receiver is the world behind the sinks and handlers. It outlives the router.
type receiver struct {
	c  *cluster
	mu sync.Mutex

	log      []delivery
	rejected map[rejection]bool
	troubles map[string]trouble // by sink or handler
	heal     chan struct{}      // closed when all troubles end
	cache    expr.Cache         // of the life at hand, from a route that looks things up
}

func newReceiver(c *cluster) *receiver {
	return &receiver{c: c, rejected: map[rejection]bool{}, troubles: map[string]trouble{}, heal: make(chan struct{})}
}

func (r *receiver) set(name string, t trouble) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles[name] = t
	r.release()
}

func (r *receiver) healAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.troubles)
	r.release()
}

func (r *receiver) release() {
	close(r.heal)
	r.heal = make(chan struct{})
}

func (r *receiver) state(name string) (trouble, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.troubles[name], r.heal
}

func (r *receiver) troubled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.troubles) > 0
}

// refused reports whether anything was ever refused for good.
func (r *receiver) refused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rejected) > 0
}

// took returns how much was taken, but for reminders, which never end.
func (r *receiver) took() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.log {
		if !r.log[i].repeat {
			n++
		}
	}
	return n
}

func (r *receiver) reject(route, sink string, uid int, op string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rejected[rejection{route, sink, uid, op}] = true
}

// end is a sink or a handler of one life of the router.
type end struct {
	r    *receiver
	l    *life
	name string
}

// Close implements plugins.Sink and plugins.Handler.
func (e *end) Close(context.Context) error { return nil }

// stall waits as the trouble says. It returns false if it may not go on.
func (e *end) stall(ctx context.Context) (trouble, bool) {
	t, healed := e.r.state(e.name)
	switch t {
	case blocked:
		select {
		case <-healed:
			return e.stall(ctx)
		case <-ctx.Done():
			return t, false
		case <-e.l.ended:
			return t, false
		}
	case slow:
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return t, false
		}
	default:
	}
	return t, true
}

var (
	errDown   = errors.New("the sink is down")
	errPoison = plugins.Reject(errors.New("the sink does not like it"))
)

// poison reports whether something about an object is refused for good.
func poison(uid int) bool { return uid%3 == 0 }

// Write implements plugins.Sink.
func (e *end) Write(ctx context.Context, events []event.Event) []error {
	errs := make([]error, len(events))
	t, ok := e.stall(ctx)
	for i := range events {
		uid, _ := strconv.Atoi(events[i].K8sUID)
		switch {
		case !ok, t == refusing, t == picky && i > 0:
			errs[i] = errDown
		case t == panicing && i == 0:
			panic("the sink panics")
		case t == poisoned && poison(uid):
			e.r.reject(events[i].Route, e.name, uid, opOf(&events[i]))
			errs[i] = errPoison
		default:
			if t == forgetful {
				errs[i] = errDown
			}
			e.record(&events[i], t == forgetful)
		}
	}
	return errs
}

func opOf(ev *event.Event) string { return strings.TrimPrefix(ev.Type, event.TypePrefix) }

func (e *end) record(ev *event.Event, doubtful bool) {
	order := e.r.c.now()
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	if e.l.dead.Load() {
		return
	}
	d := delivery{
		life: e.l.number, at: time.Now(), order: order, route: ev.Route, sink: e.name, doubtful: doubtful, op: opOf(ev),
		id: ev.ID, flagged: ev.Redelivered, initial: strings.Contains(string(ev.Data), `"initial":true`),
		seen: ev.Time, repeat: strings.Contains(string(ev.Data), `"repeat":`),
	}
	_, d.name, _ = strings.Cut(ev.Subject, "/")
	d.uid, _ = strconv.Atoi(ev.K8sUID)
	if _, rest, ok := strings.Cut(string(ev.Data), `"n":"`); ok {
		text, _, _ := strings.Cut(rest, `"`)
		d.n, _ = strconv.Atoi(text)
	}
	e.r.log = append(e.r.log, d)
}

// Handle implements plugins.Handler.
func (e *end) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	t, ok := e.stall(ctx)
	if !ok || t == refusing {
		for _, d := range batch {
			uid, _ := strconv.Atoi(d.Object().UID())
			e.r.rejectAll(e.name, uid, d.Op.String())
		}
		return nil, errors.New("the handler is down")
	}
	for i, d := range batch {
		uid, _ := strconv.Atoi(d.Object().UID())
		switch {
		case t == panicing && poison(uid):
			e.r.rejectAll(e.name, uid, d.Op.String())
			panic("the handler panics")
		case t == poisoned && poison(uid):
			e.r.rejectAll(e.name, uid, d.Op.String())
			results[i] = plugins.Result{Verdict: plugins.Fail, Err: errPoison}
		case t == picky && i > 0, t == forgetful && uid%2 == 0:
			e.r.rejectAll(e.name, uid, d.Op.String())
			results[i] = plugins.Result{Verdict: plugins.Retry}
		default:
			results[i].Events = []plugins.Emit{{Data: event.Payload(d)}}
		}
	}
	return results, nil
}

// rejectAll notes that a handler has refused something: that is so for all the routes which have it.
func (r *receiver) rejectAll(handler string, uid int, op string) { r.reject("", handler, uid, op) }
