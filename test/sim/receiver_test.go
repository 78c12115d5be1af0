package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// trouble is a fault of a sink or a handler.
type trouble int

const (
	healthy trouble = iota
	refusing
	blocked
	slow
	poisoned // some events are rejected for good
	forgetful
	picky    // only the first of several events is accepted
	panicing // a bug of the sink or handler
	troubles
)

// delivery is an event that a sink got.
type delivery struct {
	life             int
	at               time.Time
	order            int // number of moments of the cluster before
	route, sink      string
	name, op         string
	uid, n           int
	id               string
	doubtful         bool // the router was told that it failed
	initial, flagged bool
	seen, begun      time.Time // time of the delta, and of the call of the sink
	repeat           bool
	first            time.Time // time of the first delta of its group; zero: no group
	group            int       // size of its group
	held             int       // number of suppressed events
}

// rejection is an event that was rejected for good.
type rejection struct {
	route, sink string // sink is empty: by the handler
	uid         int
	op          string
}

// receiver is the other side of the sinks and handlers. It outlives the router.
type receiver struct {
	c  *cluster
	mu sync.Mutex

	log      []delivery
	rejected map[rejection]bool
	wrong    []string           // deltas that a handler should not have got
	troubles map[string]trouble // by sink or handler
	ever     bool               // there were troubles
	heal     chan struct{}      // closed when all troubles end
	cache    cel.Cache          // of the present life, from a route with look-ups
}

func newReceiver(c *cluster) *receiver {
	return &receiver{c: c, rejected: map[rejection]bool{}, troubles: map[string]trouble{}, heal: make(chan struct{})}
}

func (r *receiver) set(name string, t trouble) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles[name], r.ever = t, true
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

// refused reports whether anything was ever rejected for good.
func (r *receiver) refused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rejected) > 0
}

// took returns the number of deliveries except reminders, which never end.
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
	r     *receiver
	l     *life
	name  string
	joint bool // it makes one event of a group
}

// Close implements plugins.Sink and plugins.Handler.
func (e *end) Close(context.Context) error { return nil }

// stall waits according to the trouble. It returns false if the call must fail.
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

// poison reports whether some events about an object are rejected for good.
func poison(uid int) bool { return uid%3 == 0 }

// Write implements plugins.Sink.
func (e *end) Write(ctx context.Context, events []event.Event) []error {
	begun, errs := time.Now(), make([]error, len(events))
	t, ok := e.stall(ctx)
	for i := range events {
		of := members(&events[i])
		switch {
		case !ok, t == refusing, t == picky && i > 0:
			errs[i] = errDown
		case t == panicing && i == 0:
			panic("the sink panics")
		case t == poisoned && slices.ContainsFunc(of, func(m delivery) bool { return poison(m.uid) }):
			for _, m := range of {
				e.r.reject(events[i].Route, e.name, m.uid, m.op)
			}
			errs[i] = errPoison
		default:
			if t == forgetful {
				errs[i] = errDown
			}
			e.record(&events[i], of, begun, t == forgetful)
		}
	}
	return errs
}

func opOf(ev *event.Event) string { return strings.TrimPrefix(ev.Type, event.TypePrefix) }

// members returns the deliveries of an event: for a group, one for each object.
func members(ev *event.Event) (all []delivery) {
	payloads := strings.Split(strings.TrimSuffix(string(ev.Data), groupEnd), groupNext)
	for i, data := range payloads {
		d := delivery{id: ev.ID, op: opOf(ev), seen: ev.Time, initial: strings.Contains(data, `"initial":true`), repeat: strings.Contains(data, `"repeat":`)}
		_, d.name, _ = strings.Cut(ev.Subject, "/")
		d.uid, _ = strconv.Atoi(ev.K8sUID)
		d.n, _ = strconv.Atoi(field(data, "n"))
		if _, held, ok := strings.Cut(data, `"suppressed":`); ok {
			_, _ = fmt.Sscan(held, &d.held)
		}
		if len(payloads) > 1 || strings.HasSuffix(string(ev.Data), groupEnd) {
			d.id, d.op, d.name, d.group = fmt.Sprint(ev.ID, "/", i), field(data, "op"), field(data, "name"), len(payloads)
			d.uid, _ = strconv.Atoi(field(data, "uid"))
			nanos, _ := strconv.ParseInt(field(payloads[0], "seen"), 10, 64)
			d.first = time.Unix(0, nanos)
		}
		all = append(all, d)
	}
	return all
}

// The separator of the payloads of a group, and its end.
const groupNext, groupEnd = "\n\n", "\n"

// field returns the first text with a name in a payload.
func field(data, name string) string {
	_, rest, _ := strings.Cut(data, `"`+name+`":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

func (e *end) record(ev *event.Event, of []delivery, begun time.Time, doubtful bool) {
	order := e.r.c.now()
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	if e.l.dead.Load() {
		return
	}
	for _, d := range of {
		d.life, d.at, d.order, d.route, d.sink, d.doubtful = e.l.number, time.Now(), order, ev.Route, e.name, doubtful
		d.flagged, d.begun = ev.Redelivered, begun
		e.r.log = append(e.r.log, d)
	}
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
	if e.joint {
		e.together(t, batch, results)
		return results, nil
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

// together is Handle for a group: the result of the last delta counts.
func (e *end) together(t trouble, batch []*event.Delta, results []plugins.Result) {
	last, poisonous := &results[len(results)-1], false
	var data strings.Builder
	for i, d := range batch {
		payload := string(event.Payload(d))
		if field(payload, "app") != field(string(event.Payload(batch[0])), "app") {
			e.r.mu.Lock()
			e.r.wrong = append(e.r.wrong, fmt.Sprintf("a group has %s and %s", batch[0], d))
			e.r.mu.Unlock()
		}
		uid, _ := strconv.Atoi(d.Object().UID())
		poisonous = poisonous || poison(uid)
		if i > 0 {
			data.WriteString(groupNext)
		}
		fmt.Fprintf(&data, `{"seen":"%d",%s`, d.Seen.UnixNano(), payload[1:])
	}
	data.WriteString(groupEnd)
	switch {
	case t == poisoned && poisonous, t == panicing && poisonous:
		*last = plugins.Result{Verdict: plugins.Fail, Err: errPoison}
	case t == picky && len(batch) > 1, t == forgetful && poisonous:
		*last = plugins.Result{Verdict: plugins.Retry}
	default:
		last.Events = []plugins.Emit{{Data: []byte(data.String())}}
		return
	}
	for _, d := range batch {
		uid, _ := strconv.Atoi(d.Object().UID())
		e.r.rejectAll(e.name, uid, d.Op.String())
	}
}

// rejectAll records a rejection by a handler, which concerns all its routes.
func (r *receiver) rejectAll(handler string, uid int, op string) { r.reject("", handler, uid, op) }
