// Package kubernetes is the sink kind `kubernetes`: it does in a cluster what the data of each
// event says. docs/SINKS.md has the form of the data, byte for byte.
//
//	data ──parse──► operations ──allow──► limits ──► API server ──judge──► delivered, rejected, tried again, or the route paused
//
// Nothing of an event is sent before all of its operations were read and are allowed. An operation
// that finds its work done (the object is deleted already, or made already) is done: an event may
// come twice. What cannot be done now is tried again, with all operations of its event from the
// first on.
//
// A write is never taken for "our own" and kept from the routes: a route that is set off by what it
// writes is paused when it has written one object too often, and so is one that deletes or writes
// more than its limits allow.
//
// Errors name the object and never what is in it; what the API server says of Secrets is not
// repeated at all.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/deltarouter/deltarouter/internal/inorder"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

type sink struct {
	name   string
	api    *api
	allow  *allowance
	limits *limits
	clock  timer.Clock
	log    *slog.Logger
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	s := &sink{name: env.Name, clock: env.Clock, log: env.Log}
	if s.clock == nil {
		s.clock = timer.Real()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	rates, err := c.rates()
	if err != nil {
		return nil, err
	}
	s.limits = newLimits(rates[0], rates[1], rates[2], env.KV)
	if s.api, err = newAPI(&c, env); err != nil {
		return nil, err
	}
	s.allow, err = newAllowance(c.Allow, s.clock, s.api.labels)
	return s, err
}

// Write implements [plugins.Sink]: an event after the other. Once the API server is unavailable, or
// the route is paused, the rest is not tried; behind an event that is postponed, the rest of its
// key.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	return inorder.Each(events, func(e *event.Event) error { return s.deliver(ctx, e) })
}

// deliver does what an event says.
func (s *sink) deliver(ctx context.Context, e *event.Event) error {
	ops, err := parse(e)
	if err != nil {
		return plugins.Reject(fmt.Errorf("kubernetes %q: %w", s.name, err))
	}
	for i := range ops {
		if err := s.permit(ctx, &ops[i]); err != nil {
			return s.failure(&ops[i], err)
		}
	}
	for i := range ops {
		if err := s.do(ctx, e, &ops[i], e.ID+"#"+strconv.Itoa(i)); err != nil {
			return s.failure(&ops[i], err)
		}
	}
	return nil
}

// failure says in an error which sink and operation it is of.
func (s *sink) failure(op *operation, err error) error {
	return fmt.Errorf("kubernetes %q: %s: %w", s.name, op, err)
}

// permit finds out what an operation is about, and whether it is allowed.
func (s *sink) permit(ctx context.Context, op *operation) error {
	err := s.resolve(ctx, op)
	if err == nil {
		err = s.allow.check(ctx, op)
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return plugins.Reject(err)
	}
	if err == nil || plugins.ClassOf(err) == plugins.Rejected {
		return err
	}
	return s.judge(ctx, op, err)
}

// resolve finds the resource of a kind, or the kind of a resource, where it is needed.
func (s *sink) resolve(ctx context.Context, op *operation) error {
	t := &op.target
	needsKind := t.kind == "" && (op.verb == verbEvent || op.verb == verbApply)
	if t.resource != "" && !needsKind {
		return op.complete()
	}
	if !s.allow.knows(t.group) {
		return &refusedError{"allow says nothing of " + t.resourceText()}
	}
	found, err := s.api.find(ctx, t)
	if err != nil {
		return err
	}
	t.resource, t.kind = found.Name, found.Kind
	switch {
	case found.Namespaced && t.namespace == "":
		return plugins.Reject(errors.New("metadata.namespace is missing"))
	case !found.Namespaced && t.namespace != "":
		return plugins.Reject(errors.New("metadata.namespace: objects of this kind have none"))
	}
	return op.complete()
}

// again is how often an operation is tried at once that lost a race against another writer.
const again = 5

// do does one operation, which the limits count under an id.
func (s *sink) do(ctx context.Context, e *event.Event, op *operation, id string) error {
	counted, err := s.limits.take(s.clock.Now(), e.Route, id, op)
	if err != nil {
		return plugins.Pause(err)
	}
	for try := 0; try == 0 || try < again && s.lostRace(op, err); try++ {
		err = s.api.send(ctx, e, op, id)
	}
	if err == nil {
		return nil
	}
	if counted && answered(err) {
		s.limits.giveBack(e.Route, id, op)
	}
	return s.judge(ctx, op, err)
}

// Resume implements [plugins.Resumer].
func (s *sink) Resume(route string) { s.limits.resume(route) }

// Close implements [plugins.Sink].
func (s *sink) Close(context.Context) error {
	s.api.close()
	return nil
}
