package export

import (
	"context"
	"encoding/binary"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/deltarouter/deltarouter/internal/trace"
)

// spans makes the spans of the SDK from finished records. It is used by one goroutine.
type spans struct {
	provider *sdk.TracerProvider
	tracer   otel.Tracer
	done     []sdk.ReadOnlySpan
	span     trace.Context // of the next root span, see NewIDs
	children uint64        // the number of the next child
}

// newSpans returns spans of a router.
func newSpans(service, version, cluster string) *spans {
	s := &spans{}
	// The ratio was applied before, and the number of links, events and attributes is bounded.
	s.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(s), sdk.WithSpanProcessor(s),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service), attribute.String("service.version", version), attribute.String("k8s.cluster.name", cluster))))
	s.tracer = s.provider.Tracer("deltarouter")
	return s
}

// NewIDs implements [sdk.IDGenerator]: the IDs were decided when the delta became pending.
func (s *spans) NewIDs(context.Context) (otel.TraceID, otel.SpanID) {
	return otel.TraceID(s.span.Trace), otel.SpanID(s.span.Span)
}

// NewSpanID implements [sdk.IDGenerator]. A span with a parent in another route has the ID that its
// receivers have got; the IDs of its children follow it.
func (s *spans) NewSpanID(context.Context, otel.TraceID) (id otel.SpanID) {
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(s.span.Span[:])+s.children)
	s.children++
	if !id.IsValid() {
		id[0] = 1
	}
	return id
}

// OnStart implements [sdk.SpanProcessor].
func (*spans) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements [sdk.SpanProcessor].
func (s *spans) OnEnd(span sdk.ReadOnlySpan) { s.done = append(s.done, span) }

// Shutdown implements [sdk.SpanProcessor].
func (*spans) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdk.SpanProcessor].
func (*spans) ForceFlush(context.Context) error { return nil }

// take returns the spans since the last call.
func (s *spans) take() []sdk.ReadOnlySpan {
	done := s.done
	s.done = nil
	return done
}

// add makes the spans of a record: that of the route, and one for the wait in the queue and each
// step.
func (s *spans) add(ctx context.Context, r *trace.Record) {
	s.span, s.children = r.Context, 1
	if r.Parent != (trace.SpanID{}) {
		s.children = 0
		ctx = otel.ContextWithRemoteSpanContext(ctx, otel.NewSpanContext(otel.SpanContextConfig{
			TraceID: otel.TraceID(r.Trace), SpanID: otel.SpanID(r.Parent), TraceFlags: otel.FlagsSampled, Remote: true,
		}))
	}
	begin := r.Seen
	if begin.IsZero() || begin.After(r.End) {
		begin = r.End
	}
	ctx, span := s.tracer.Start(ctx, "route "+r.Route, otel.WithTimestamp(begin), otel.WithSpanKind(otel.SpanKindConsumer),
		otel.WithLinks(links(r)...), otel.WithAttributes(attributes(r)...))
	span.AddEvent("seen", otel.WithTimestamp(begin))
	if !r.Matched.IsZero() {
		span.AddEvent("matched", otel.WithTimestamp(r.Matched))
		if !r.Taken.IsZero() {
			s.child(ctx, "wait", otel.SpanKindInternal, r.Matched, r.Taken, "")
		}
	}
	for i := range r.Steps {
		step := &r.Steps[i]
		name, kind := "handle "+step.Name, otel.SpanKindInternal
		size := attribute.Int("deltarouter.batch.deltas", step.Size)
		switch step.Kind {
		case trace.Deliver:
			name, kind, size = "deliver "+step.Name, otel.SpanKindProducer, attribute.Int("deltarouter.events", step.Size)
		case trace.Forward:
			name, kind, size = "forward "+step.Name, otel.SpanKindProducer, attribute.Int("deltarouter.events", step.Size)
		case trace.Handle:
		}
		s.child(ctx, name, kind, step.Start, step.End, step.Err, size)
	}
	if r.Reason != "" {
		span.SetStatus(codes.Error, r.Reason)
	}
	span.End(otel.WithTimestamp(r.End))
}

// child makes a span below that of the route.
func (s *spans) child(ctx context.Context, name string, kind otel.SpanKind, start, end time.Time, failure string, with ...attribute.KeyValue) {
	_, span := s.tracer.Start(ctx, name, otel.WithTimestamp(start), otel.WithSpanKind(kind), otel.WithAttributes(with...))
	if failure != "" {
		span.SetStatus(codes.Error, failure)
	}
	span.End(otel.WithTimestamp(end))
}

func links(r *trace.Record) []otel.Link {
	all := make([]otel.Link, len(r.Links))
	for i, c := range r.Links {
		flags := otel.TraceFlags(0).WithSampled(c.Sampled)
		all[i].SpanContext = otel.NewSpanContext(otel.SpanContextConfig{TraceID: otel.TraceID(c.Trace), SpanID: otel.SpanID(c.Span), TraceFlags: flags})
	}
	return all
}

// attributes returns the attributes of the span of a route, without those that say nothing.
func attributes(r *trace.Record) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 20)
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, value))
		}
	}
	number := func(key string, n int) {
		if n > 0 {
			all = append(all, attribute.Int(key, n))
		}
	}
	flag := func(key string, on bool) {
		if on {
			all = append(all, attribute.Bool(key, true))
		}
	}
	text("deltarouter.route", r.Route)
	text("deltarouter.source", r.Source)
	text("deltarouter.op", r.Op)
	text("deltarouter.result", string(r.Result))
	text("k8s.namespace.name", r.Namespace)
	text("k8s.object.kind", r.Kind)
	text("k8s.object.name", r.Name)
	text("k8s.object.uid", r.UID)
	text("k8s.object.resource_version", r.RV)
	number("deltarouter.events", r.Events)
	number("deltarouter.suppressed", r.Suppressed)
	number("deltarouter.links.dropped", r.Unlinked)
	number("deltarouter.steps.dropped", r.Skipped)
	flag("deltarouter.initial", r.Initial)
	flag("deltarouter.stale", r.Stale)
	flag("deltarouter.redelivered", r.Redelivered)
	flag("deltarouter.restored", r.Matched.IsZero())
	return all
}
