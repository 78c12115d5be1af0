// Package kubernetes is the sink kind `kubernetes`: it executes the operations in the data of each
// event in a cluster. docs/SINKS.md specifies the data.
//
//	data ──parse──► operations ──allow──► limits ──► API server ──judge──► delivered, rejected, tried again, or the route paused
//
// The sink parses all operations of an event and checks their grants before it sends the first one.
// An operation whose work is done already (the object is deleted, or exists) succeeds, because an
// event may come twice. If an operation is not possible at the moment, the event is retried from
// its first operation on.
//
// The sink does not hide its own writes from the routes. A route that its own writes trigger is
// paused when it writes one object too often. So is a route that exceeds its limit of deletes or
// writes.
//
// Errors name the object and never contain its content. Messages of the API server about Secrets
// are not shown at all.
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
	s := &sink{name: env.Name, clock: timer.Of(env.Clock), log: env.Log}
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

// Write implements [plugins.Sink]. It delivers one event after the other. After the API server is
// unavailable, or the route is paused, it does not deliver the rest. After a postponed event it
// does not deliver the rest of its key.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	return inorder.Each(events, func(e *event.Event) error { return s.deliver(ctx, e) })
}

// deliver executes the operations of an event.
func (s *sink) deliver(ctx context.Context, e *event.Event) error {
	ops, err := parse(e)
	if err != nil {
		return plugins.Reject(plugins.Categorize(fmt.Errorf("kubernetes %q: %w", s.name, err), "the event is not an operation of the kind kubernetes"))
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

// failure adds the sink and the operation to an error.
func (s *sink) failure(op *operation, err error) error {
	return fmt.Errorf("kubernetes %q: %s: %w", s.name, op, err)
}

// permit resolves the target of an operation, and checks whether a grant allows it.
func (s *sink) permit(ctx context.Context, op *operation) error {
	err := s.resolve(ctx, op)
	if err == nil {
		err = s.allow.check(ctx, op)
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		return plugins.Reject(plugins.Categorize(err, "allow of the sink does not permit the operation"))
	}
	if err == nil || plugins.ClassOf(err) == plugins.Rejected {
		return err
	}
	return s.judge(ctx, op, err)
}

// resolve finds the resource of a kind, or the kind of a resource, if it is needed.
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

// again is the number of immediate retries after a lost race against another writer.
const again = 5

// do executes one operation. The limits count it under id.
func (s *sink) do(ctx context.Context, e *event.Event, op *operation, id string) error {
	counted, err := s.limits.take(s.clock.Now(), e.Route, id, op)
	if err != nil {
		return plugins.Pause(err)
	}
	if op.verb == verbApply {
		err = s.apply(ctx, e, op, id)
	}
	for try := 0; op.verb != verbApply && (try == 0 || try < again && s.lostRace(op, err)); try++ {
		_, err = s.api.send(ctx, e, op, id)
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
