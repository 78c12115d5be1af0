// Package otlp is the sink kind `otlp`: it sends each event as a log record of OpenTelemetry, over
// gRPC or HTTP, to any receiver of OTLP: a collector, Loki, Elastic, Datadog.
//
// It uses the published messages of the protocol instead of the SDK's exporters, because these do
// not report the result of each event: docs/rationale/sinks.md has the figures.
//
// The specification of OTLP decides the meaning of a response.
//
//   - The receiver rejects some records of a request: it does not say which, so all events of the
//     request are rejected.
//   - The receiver refuses a request because of its content or size, or for another permanent
//     reason: the request is halved until the faulty event is alone.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/otlpconn"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// overhead is the approximate size of a log record without the event's data.
const overhead = 1 << 10

type sink struct {
	name, cluster string
	config        sinkConfig
	log           *slog.Logger
	client        otlpconn.Client
}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	s := &sink{name: env.Name, cluster: env.Cluster, config: c, log: env.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.client, err = otlpconn.New(c.connection(), otlpconn.Logs()); err != nil {
		return nil, s.named(err)
	}
	return s, nil
}

func (s *sink) named(err error) error {
	u := s.config.url()
	return fmt.Errorf("otlp %q: %s://%s: %w", s.name, u.Scheme, u.Host, err)
}

// Write implements [plugins.Sink]. It sends one request after the other. After the receiver is
// unavailable, it does not send the rest.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	errs, failed := make([]error, len(events)), false
	for start := 0; start < len(events); {
		end := s.next(events, start)
		if settled, err := s.deliver(ctx, events[start:end], errs[start:end]); err != nil {
			for i := start + settled; i < len(events); i++ {
				errs[i] = err
			}
			return errs
		}
		start = end
	}
	for _, err := range errs {
		failed = failed || err != nil
	}
	if !failed {
		return nil
	}
	return errs
}

// Close implements [plugins.Sink]. There is nothing to flush, because each write has waited for its
// responses.
func (s *sink) Close(context.Context) error {
	return s.client.Close()
}

// next returns the end of the request that begins at start.
func (s *sink) next(events []event.Event, start int) int {
	size, end := 0, start
	for ; end < len(events) && end-start < s.config.MaxEvents; end++ {
		if size += len(events[end].Data) + overhead; size > int(s.config.MaxBytes) && end > start {
			break
		}
	}
	return end
}

// deliver sends events, and halves a request that is refused because of its content. An error means
// that the receiver is unavailable. In that case only the first settled events have a result.
func (s *sink) deliver(ctx context.Context, events []event.Event, errs []error) (settled int, unavailable error) {
	err := s.send(ctx, events)
	var blame *otlpconn.BlameError
	switch {
	case err == nil:
	case plugins.ClassOf(err) != plugins.Rejected:
		return 0, err
	case len(events) > 1 && errors.As(err, &blame):
		half := len(events) / 2
		if settled, err := s.deliver(ctx, events[:half], errs[:half]); err != nil {
			return settled, err
		}
		settled, err := s.deliver(ctx, events[half:], errs[half:])
		return half + settled, err
	default:
		for i := range errs {
			errs[i] = err
		}
	}
	return len(events), nil
}

// partialError means that a receiver rejected some records of a request.
type partialError struct{ rejected, of int64 }

func (e *partialError) Error() string {
	if e.rejected >= e.of {
		return fmt.Sprintf("rejected all %d records of the request", e.of)
	}
	return fmt.Sprintf("rejected %d of the %d records of the request and does not say which: maxEvents: 1 tells", e.rejected, e.of)
}

// send sends one request.
func (s *sink) send(ctx context.Context, events []event.Event) error {
	headers, err := httpsink.Header(s.config.Headers)
	if err != nil {
		return s.named(err)
	}
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	answer := &collector.ExportLogsServiceResponse{}
	err = s.client.Send(within, request(events, s.cluster), answer, headers)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return s.named(ctx.Err())
	case within.Err() != nil:
		return plugins.Categorize(s.named(fmt.Errorf("no answer within %v", s.config.Timeout)), "no answer in time")
	default:
		return s.explained(s.named(err), events, headers)
	}
	switch partial := answer.GetPartialSuccess(); {
	case partial.GetRejectedLogRecords() > 0:
		return plugins.Reject(plugins.Categorize(s.named(&partialError{partial.GetRejectedLogRecords(), int64(len(events))}), "records of the request were rejected"))
	case partial.GetErrorMessage() != "":
		// The warning is not logged, because it may quote the request.
		s.log.WarnContext(ctx, "otlp: the receiver accepted all events with a warning", "events", len(events))
	}
	return nil
}

// explained adds the explanation of the receiver to a rejection, without the values of the headers.
// It adds nothing if an event concerns a Secret, which the receiver may repeat.
func (s *sink) explained(err error, events []event.Event, headers http.Header) error {
	var refused *otlpconn.Refusal
	for i := range events {
		if httpsink.IsConfidential(&events[i]) {
			return err
		}
	}
	if !errors.As(err, &refused) || len(refused.Said) == 0 {
		return err
	}
	var confidential []string
	for _, values := range headers {
		confidential = append(confidential, values...)
	}
	u := s.config.url()
	if u.Path == otlpconn.Logs().Path && u.RawQuery == "" {
		u = nil
	}
	return plugins.WithResponse(err, httpsink.Excerpt(refused.Said, refused.Whole, httpsink.Secrets(u, confidential)))
}

// Probe implements [plugins.Prober]. It connects to the receiver, and verifies its certificate for
// https. It sends no request.
func (kind) Probe(ctx context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	return c.connection().Probe(ctx)
}
