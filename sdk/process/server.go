package process

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// Server answers the calls of the router for a plugin. [Serve] uses it; it is exported for
// processtest.
type Server struct {
	pluginv1.UnimplementedHandlerServer

	plugin      Plugin
	configuring func() // called before the plugin's own code; may be nil

	mu     sync.Mutex
	router *Router
	handle Handler // nil: Configure was not called yet
}

// NewServer returns the server of a plugin.
func NewServer(p Plugin) *Server { return &Server{plugin: p} }

// Register registers the plugin with a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) { pluginv1.RegisterHandlerServer(g, s) }

// Close ends the plugin. It is called once.
func (s *Server) Close() {
	s.mu.Lock()
	configured, router := s.handle != nil, s.router
	s.mu.Unlock()
	if configured && s.plugin.Close != nil {
		s.plugin.Close()
	}
	router.close()
}

// Describe implements pluginv1.HandlerServer.
func (s *Server) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	return &pluginv1.DescribeResponse{Name: s.plugin.Name, Version: s.plugin.Version, ConfigSchema: s.plugin.Schema}, nil
}

// Configure implements pluginv1.HandlerServer.
func (s *Server) Configure(ctx context.Context, r *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	if s.configuring != nil {
		s.configuring()
	}
	router, err := newRouter(r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	handle, err := s.setup(ctx, router)
	if err == nil && handle == nil {
		err = errors.New("the plugin's Setup returns no handler")
	}
	if err != nil {
		router.close()
		return &pluginv1.ConfigureResponse{Error: err.Error()}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle != nil {
		router.close()
		return nil, status.Error(codes.FailedPrecondition, "the plugin is configured already")
	}
	s.router, s.handle = router, handle
	return &pluginv1.ConfigureResponse{}, nil
}

// setup calls the plugin's Setup. It turns a panic into an error.
func (s *Server) setup(ctx context.Context, r *Router) (handle Handler, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if s.plugin.Setup == nil {
		return nil, errors.New("the plugin has no Setup")
	}
	return s.plugin.Setup(ctx, r)
}

// Handle implements pluginv1.HandlerServer.
func (s *Server) Handle(ctx context.Context, r *pluginv1.HandleRequest) (*pluginv1.HandleResponse, error) {
	s.mu.Lock()
	handle := s.handle
	s.mu.Unlock()
	if handle == nil {
		return nil, status.Error(codes.FailedPrecondition, "Handle before Configure")
	}
	ctx = context.WithValue(ctx, callKey{}, r.GetCall())
	answer := &pluginv1.HandleResponse{}
	for i, d := range r.GetDeltas() {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		events, err := guarded(ctx, handle, delta(d))
		if result := resultOf(events, err); result != nil {
			result.Delta = uint32(i)
			answer.Results = append(answer.Results, result)
		}
	}
	return answer, nil
}

// guarded calls the handler. It turns a panic into an error, and prints its stack.
func guarded(ctx context.Context, handle Handler, d Delta) (events []Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			debug.PrintStack()
		}
	}()
	return handle(ctx, d)
}

// resultOf returns the answer for one delta; nil: ok without events.
func resultOf(events []Event, err error) *pluginv1.Result {
	var retry *retryError
	switch {
	case errors.Is(err, ErrDrop):
		return &pluginv1.Result{Verdict: pluginv1.Verdict_VERDICT_DROP}
	case errors.As(err, &retry):
		return &pluginv1.Result{Verdict: pluginv1.Verdict_VERDICT_RETRY, Message: err.Error(), RetryAfterMs: retry.after.Milliseconds()}
	case err != nil:
		return &pluginv1.Result{Verdict: pluginv1.Verdict_VERDICT_FAIL, Message: err.Error()}
	case len(events) == 0:
		return nil
	}
	result := &pluginv1.Result{}
	for i := range events {
		data, err := events[i].json()
		if err != nil {
			return &pluginv1.Result{Verdict: pluginv1.Verdict_VERDICT_FAIL, Message: fmt.Sprintf("event %d: %v", i, err)}
		}
		result.Events = append(result.Events, &pluginv1.Event{Type: events[i].Type, Subject: events[i].Subject, Data: data})
	}
	return result
}

// delta converts a delta of the protocol.
func delta(d *pluginv1.Delta) Delta {
	of := Delta{
		Op: Op(d.GetOp()), Source: d.GetSource(), Cluster: d.GetCluster(), Resource: d.GetResource(), Kind: d.GetKind(),
		Namespace: d.GetNamespace(), Name: d.GetName(), UID: d.GetUid(), ResourceVersion: d.GetResourceVersion(),
		Object: d.GetNewObject(), OldObject: d.GetOldObject(),
		Initial: d.GetInitial(), Stale: d.GetStale(), Redelivered: d.GetRedelivered(), Seen: time.Unix(0, d.GetSeenUnixNano()),
		Late: d.GetLate(), Repeat: d.GetRepeat(), Suppressed: int(d.GetSuppressed()),
		TraceParent: d.GetTraceParent(), With: d.GetWith(),
	}
	if since := d.GetSinceUnixNano(); since != 0 {
		of.Since = time.Unix(0, since)
	}
	if e := d.GetEvent(); e != nil {
		of.Event = &RouteEvent{
			ID: e.GetId(), Type: e.GetType(), Source: e.GetSource(), Subject: e.GetSubject(), Route: e.GetRoute(),
			Time: time.Unix(0, e.GetTimeUnixNano()), Data: e.GetData(),
		}
	}
	if len(of.Object) == 0 {
		of.Object = of.OldObject
	}
	return of
}
