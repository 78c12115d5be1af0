// Package export sends finished spans to a receiver of OpenTelemetry, with the SDK and the protocol
// of package otlpconn.
//
// Spans wait in a bounded queue, and one goroutine sends them in batches. So a receiver that is
// slow or unavailable never delays a delivery: when the queue is full, spans are dropped and
// counted.
package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/otlpconn"
	"github.com/deltarouter/deltarouter/internal/trace"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	// maxQueued bounds the records that wait. A request has at least one record, and others until
	// it has maxSpans spans, so that it has less than the 4 MiB that receivers accept by default.
	maxQueued = 2048
	maxSpans  = 512
	// maxWait is how long a record waits for others.
	maxWait = time.Second
	// maxAttempts bounds the attempts for a request; meanwhile the queue fills.
	maxAttempts = 5
)

// Exporter implements [trace.Output].
type Exporter struct {
	sampler sdk.Sampler
	queue   chan *trace.Record
	spans   *spans
	client  *otlptrace.Exporter
	metrics *metrics.Metrics
	log     *slog.Logger
	failing bool // the last request failed, and that was logged

	closing chan struct{}
	flushed chan struct{}
	abort   context.CancelFunc // ends requests in progress
}

// Env has the dependencies of an Exporter.
type Env struct {
	Version, Cluster string
	Metrics          *metrics.Metrics
	Log              *slog.Logger
}

// New starts an Exporter, which runs until Close. It does not wait for the receiver.
func New(ctx context.Context, c *config.Traces, env Env) (*Exporter, error) {
	over, err := otlpconn.New(otlpconn.OfTraces(c), otlpconn.Traces())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	ctx, abort := context.WithCancel(context.WithoutCancel(ctx))
	e := &Exporter{
		sampler: sdk.TraceIDRatioBased(c.Ratio), queue: make(chan *trace.Record, maxQueued),
		spans:   newSpans(c.ServiceName, env.Version, env.Cluster),
		client:  otlptrace.NewUnstarted(&uploads{over, c, env.Metrics}),
		metrics: env.Metrics, log: env.Log,
		closing: make(chan struct{}), flushed: make(chan struct{}), abort: abort,
	}
	if err := e.client.Start(ctx); err != nil {
		abort()
		return nil, err
	}
	go e.run(ctx)
	return e, nil
}

// Samples implements [trace.Output].
func (e *Exporter) Samples(id trace.ID) bool {
	return e.sampler.ShouldSample(sdk.SamplingParameters{TraceID: otel.TraceID(id)}).Decision == sdk.RecordAndSample
}

// Export implements [trace.Output].
func (e *Exporter) Export(r *trace.Record) {
	select {
	case e.queue <- r:
	default:
		e.count(metrics.SpansDropped, 1+len(r.Steps))
	}
}

// Close sends the spans that wait, until ctx is done. No other call of Close may run. Spans that
// are exported later are lost.
func (e *Exporter) Close(ctx context.Context) error {
	close(e.closing)
	select {
	case <-e.flushed:
	case <-ctx.Done():
		e.abort()
		<-e.flushed
	}
	e.abort()
	return e.client.Shutdown(context.WithoutCancel(ctx))
}

func (e *Exporter) count(result string, n int) {
	e.metrics.TraceSpans.WithLabelValues(result).Add(float64(n))
}

// run sends batches until the exporter is closed and the queue is empty.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.flushed)
	for {
		select {
		case r := <-e.queue:
			e.fill(ctx, r)
			e.send(ctx)
		case <-e.closing:
			for len(e.queue) > 0 {
				e.fill(ctx, <-e.queue)
				e.send(ctx)
			}
			return
		}
	}
}

// fill makes the spans of r and of the records that follow soon.
func (e *Exporter) fill(ctx context.Context, r *trace.Record) {
	wait := time.NewTimer(maxWait)
	defer wait.Stop()
	e.spans.add(ctx, r)
	for len(e.spans.done) < maxSpans {
		select {
		case r := <-e.queue:
			e.spans.add(ctx, r)
			continue
		default:
		}
		select {
		case r := <-e.queue:
			e.spans.add(ctx, r)
		case <-wait.C:
			return
		case <-e.closing:
			return
		}
	}
}

// send sends the spans that were made. It retries while the receiver is unavailable.
func (e *Exporter) send(ctx context.Context) {
	batch, retry := e.spans.take(), backoff.Policy{}
	for attempt := 1; ; attempt++ {
		err := e.client.ExportSpans(ctx, batch)
		switch {
		case err == nil:
			e.failing = false
			return
		case plugins.ClassOf(err) == plugins.Rejected:
			e.count(metrics.SpansRejected, len(batch))
			e.complain(err)
			return
		}
		e.complain(err)
		pause := time.NewTimer(max(retry.Delay(attempt), min(plugins.RetryAfter(err), time.Minute)))
		closing := false
		select {
		case <-pause.C:
		case <-e.closing:
			closing = true
		case <-ctx.Done():
		}
		pause.Stop()
		if closing || ctx.Err() != nil || attempt == maxAttempts {
			e.count(metrics.SpansDropped, len(batch))
			return
		}
	}
}

// complain logs the first failure after a success.
func (e *Exporter) complain(err error) {
	if !e.failing {
		e.failing = true
		e.log.Warn("traces are not exported; deltas are delivered regardless; see the metric deltarouter_trace_spans_total", "err", errors.Unwrap(err))
	}
}

// uploads implements [otlptrace.Client] with the connection of the router.
type uploads struct {
	client  otlpconn.Client
	config  *config.Traces
	metrics *metrics.Metrics
}

// Start implements [otlptrace.Client]. The first request connects.
func (*uploads) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (u *uploads) Stop(context.Context) error { return u.client.Close() }

// UploadTraces implements [otlptrace.Client].
func (u *uploads) UploadTraces(ctx context.Context, batch []*tracepb.ResourceSpans) error {
	headers, err := httpsink.Header(u.config.Headers)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, u.config.Timeout)
	defer cancel()
	var answer collector.ExportTraceServiceResponse
	err = u.client.Send(within, &collector.ExportTraceServiceRequest{ResourceSpans: batch}, &answer, headers)
	switch {
	case err == nil:
	case ctx.Err() == nil && within.Err() != nil:
		return fmt.Errorf("no answer within %v", u.config.Timeout)
	default:
		return err
	}
	sent := 0
	for _, r := range batch {
		for _, scope := range r.GetScopeSpans() {
			sent += len(scope.GetSpans())
		}
	}
	rejected := min(max(int(answer.GetPartialSuccess().GetRejectedSpans()), 0), sent)
	u.metrics.TraceSpans.WithLabelValues(metrics.SpansExported).Add(float64(sent - rejected))
	if rejected > 0 {
		u.metrics.TraceSpans.WithLabelValues(metrics.SpansRejected).Add(float64(rejected))
	}
	return nil
}
