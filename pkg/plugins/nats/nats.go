// Package nats is the sink kind `nats`: it publishes each event to a stream of NATS JetStream. An
// event is delivered when the stream has acknowledged it.
//
// The Nats-Msg-Id of a message is the id of the event, so the stream drops duplicates within its
// window. Events of different keys are in flight at the same time. Events of one key are published
// one after another, so they stay in order after any failure.
//
// A message that is too large is rejected. All other errors (no connection, no stream for the
// subject, a full stream, no acknowledgement in time) mean that NATS is unavailable, because they
// do not concern the event. The next write replaces a lost connection, so the host's backoff and
// circuit breaker limit the attempts. A message is sent only during its write.
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/complaints"
	"github.com/deltarouter/deltarouter/internal/inorder"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// codeHeaderTooLarge is the server's JSStreamHeaderExceedsMaximumErr, which nats.go does not
// define.
const codeHeaderTooLarge jetstream.ErrorCode = 10097

type sink struct {
	name    string
	config  sinkConfig
	subject subject
	log     *slog.Logger
	dialing chan struct{} // contains one token; its holder may use and replace link
	link    *link         // nil: there is no connection yet
	said    *complaints.Log
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	subject, err := parseSubject(c.Subject)
	if err != nil {
		return nil, err
	}
	s := &sink{name: env.Name, config: c, subject: subject, log: env.Log, dialing: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.said = complaints.New(s.log)
	return s, nil
}

// Write implements [plugins.Sink].
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	if len(events) == 0 {
		return nil
	}
	link, err := s.connect(ctx)
	if err == nil {
		err = link.ensure(ctx, &s.config, s.subject)
	}
	if err != nil {
		return slices.Repeat([]error{s.named(err)}, len(events))
	}
	w := write{sink: s, link: link, events: events}
	return inorder.Flights(events, func(flight []int, errs []error) error { return w.send(ctx, flight, errs) })
}

func (s *sink) named(err error) error {
	return s.config.hide(fmt.Errorf("nats %q: %s: %w", s.name, s.config.names(), err))
}

// connect returns the connection, and opens one if necessary.
func (s *sink) connect(ctx context.Context) (*link, error) {
	select {
	case s.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.dialing }()
	if s.link != nil && s.link.conn.IsConnected() {
		return s.link, nil
	}
	if s.link != nil {
		if err := s.link.close(ctx); err != nil {
			return nil, err
		}
		s.link = nil
	}
	link, err := dial(ctx, &s.config, func(err error) {
		s.said.Say(slog.LevelWarn, "nats: the server complains", err, slog.Attr{})
	})
	if err != nil {
		return nil, err
	}
	s.link = link
	return link, nil
}

// Close implements [plugins.Sink]. There is nothing to flush, because each write has waited for its
// acknowledgements.
func (s *sink) Close(ctx context.Context) error {
	s.dialing <- struct{}{}
	defer func() { <-s.dialing }()
	defer s.said.Close()
	if s.link == nil {
		return nil
	}
	link := s.link
	s.link = nil
	return link.close(ctx)
}

// write is one call of Write.
type write struct {
	*sink
	link   *link
	events []event.Event
}

// flying is an event without an acknowledgement yet.
type flying struct {
	index int
	ack   jetstream.PubAckFuture
}

// send publishes the events of a flight, and sets the errors of those that fail. lost means that
// the connection is lost.
func (w *write) send(ctx context.Context, flight []int, errs []error) (lost error) {
	sent := make([]flying, 0, len(flight))
	for _, i := range flight {
		if errs[i] = lost; lost != nil {
			continue
		}
		ack, err := w.publish(&w.events[i])
		switch {
		case err == nil:
			sent = append(sent, flying{i, ack})
		case plugins.ClassOf(err) != plugins.Rejected:
			lost = err
			fallthrough
		default:
			errs[i] = err
		}
	}
	w.land(ctx, sent, errs)
	return lost
}

// publish sends one event.
func (w *write) publish(e *event.Event) (jetstream.PubAckFuture, error) {
	subject := w.subject.of(e)
	if len(subject) > maxSubject {
		return nil, plugins.Reject(plugins.Categorize(w.named(fmt.Errorf("event %s: its subject has %d bytes, at most %d are possible: use a shorter template", e.ID, len(subject), maxSubject)), "the subject is too long"))
	}
	message := &nats.Msg{Subject: subject, Data: e.Data, Header: nats.Header{}}
	for name, value := range e.Attributes {
		message.Header["ce-"+name] = []string{string(appendHeader(nil, value))}
	}
	if e.TraceParent != "" { // the name that receivers with OpenTelemetry look for
		message.Header["traceparent"] = []string{e.TraceParent}
	}
	if len(e.Data) > 0 {
		message.Header["content-type"] = []string{"application/json"}
	}
	// Retries of the client are off, because a later one could overtake another event.
	options := []jetstream.PublishOpt{jetstream.WithMsgID(e.ID), jetstream.WithRetryAttempts(0)}
	if w.config.Stream.Name != "" {
		options = append(options, jetstream.WithExpectStream(w.config.Stream.Name))
	}
	ack, err := w.link.js.PublishMsgAsync(message, options...)
	if err != nil {
		return nil, w.judge(e, err)
	}
	return ack, nil
}

// land waits for the result of each event in flight.
func (w *write) land(ctx context.Context, flight []flying, errs []error) {
	deadline := time.NewTimer(w.config.Timeout)
	defer deadline.Stop()
	var stop error
	for _, f := range flight {
		err := stop
		select {
		case <-f.ack.Ok():
			err = nil
		case cause := <-f.ack.Err():
			err = w.judge(&w.events[f.index], cause)
		default:
			if err == nil {
				err = w.await(ctx, f, deadline.C)
			}
			if err != nil && plugins.ClassOf(err) != plugins.Rejected && stop == nil && isOver(err) {
				stop = err
			}
		}
		errs[f.index] = err
	}
}

// overError means that the time of the write is over.
type overError struct{ error }

func (e *overError) Unwrap() error { return e.error }

func isOver(err error) bool {
	var over *overError
	return errors.As(err, &over)
}

// await waits for one acknowledgement.
func (w *write) await(ctx context.Context, f flying, late <-chan time.Time) error {
	select {
	case <-f.ack.Ok():
		return nil
	case err := <-f.ack.Err():
		return w.judge(&w.events[f.index], err)
	case <-ctx.Done():
		return &overError{w.named(ctx.Err())}
	case <-w.link.closed:
		select {
		case <-f.ack.Ok(): // both channels are ready
			return nil
		default:
		}
		return &overError{w.named(errors.New("the connection was lost before the acknowledgement"))}
	case <-late:
	}
	err := fmt.Errorf("no acknowledgement within %v", w.config.Timeout)
	if complaint := w.link.complain.Load(); complaint != nil {
		err = fmt.Errorf("%w; the server said last: %w", err, *complaint)
	}
	return &overError{w.named(err)}
}

// lessData is the remedy for an event that is too large, beside a larger limit.
const lessData = "or give the route an emit with the fields that the receiver needs (without one, an update has the object twice)"

// judge classifies an error of a publication.
func (w *write) judge(e *event.Event, err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return plugins.Reject(plugins.Categorize(w.named(fmt.Errorf("event %s of %d bytes: larger than the max_payload of the server (%d bytes): raise it, %s",
			e.ID, len(e.Data), w.link.conn.MaxPayload(), lessData)), "larger than the max_payload of the server"))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		w.link.ensured.Store(false)
		return w.named(errors.New("no stream has the subject, or JetStream is not ready: create a stream, or set stream.create"))
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return plugins.Reject(plugins.Categorize(w.named(fmt.Errorf("event %s of %d bytes: %w: raise the maximum of the stream, %s", e.ID, len(e.Data), err, lessData)), "larger than the stream takes"))
	case errors.As(err, &api) && api.ErrorCode == codeHeaderTooLarge:
		return plugins.Reject(plugins.Categorize(w.named(fmt.Errorf("event %s of %d bytes: %w", e.ID, len(e.Data), err)), "larger than the stream takes"))
	}
	return w.named(err)
}

// Probe implements [plugins.Prober]. It connects like the sink, and requests the stream that must
// exist. It publishes nothing.
func (kind) Probe(ctx context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	link, err := dial(ctx, &c, func(error) {})
	if err != nil {
		return fmt.Errorf("%s: %w", c.names(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Stream.Name != "" && !c.Stream.Create {
		if _, err = link.js.Stream(ctx, c.Stream.Name); err != nil {
			err = c.hide(fmt.Errorf("stream %s: %w", c.Stream.Name, err))
		}
	}
	return errors.Join(err, link.close(ctx))
}

// MaxEvent returns the largest event that the server and the stream take, and the setting to raise.
func (kind) MaxEvent(ctx context.Context, node config.Node) (bytes int64, setting string, err error) {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return 0, "", err
	}
	link, err := dial(ctx, &c, func(error) {})
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	bytes, setting = link.conn.MaxPayload(), "max_payload of the server"
	if c.Stream.Name != "" {
		// a stream that is yet to be created has no maximum
		if stream, err := link.js.Stream(ctx, c.Stream.Name); err == nil {
			if most := int64(stream.CachedInfo().Config.MaxMsgSize); most > 0 && most < bytes {
				bytes, setting = most, "the maximum message size of the stream"
			}
		}
	}
	return bytes, setting, link.close(ctx)
}
