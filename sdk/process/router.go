package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// maxAnswer is the maximum size of an answer of the router in bytes.
const maxAnswer = 2 << 30

// The errors of the methods of [Router]. The handler's `allow` grants them.
var (
	ErrDenied = errors.New("not granted to this handler")
	ErrQuota  = errors.New("over the handler's quota")
)

// Router contains the functions of the router that a plugin may call. It is safe for concurrent
// use. Pass the context of the handler's call to the methods; look-ups work only with it.
type Router struct {
	Handler string // the name of the handler in the router's configuration
	Cluster string

	config string
	token  string
	conn   *grpc.ClientConn // nil: there are no grants
	api    pluginv1.HostClient
}

// newRouter prepares the connection to the router. The connection is opened at its first use.
func newRouter(r *pluginv1.ConfigureRequest) (*Router, error) {
	router := &Router{Handler: r.GetHandler(), Cluster: r.GetCluster(), config: r.GetConfig(), token: r.GetHostToken()}
	if r.GetHostAddress() == "" {
		return router, nil
	}
	conn, err := grpc.NewClient(r.GetHostAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer-1), grpc.MaxCallSendMsgSize(maxAnswer-1)))
	if err != nil {
		return nil, err
	}
	router.conn, router.api = conn, pluginv1.NewHostClient(conn)
	return router, nil
}

// callKey is the key under which the context of a handler has the number of its call.
type callKey struct{}

func callOf(ctx context.Context) uint64 {
	id, _ := ctx.Value(callKey{}).(uint64)
	return id
}

// ask prepares the context and the client of a request.
func (r *Router) ask(ctx context.Context) (context.Context, pluginv1.HostClient, error) {
	if r.api == nil {
		return nil, nil, ErrDenied
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.token), r.api, nil
}

// failed converts an error of gRPC.
func failed(what string, err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.PermissionDenied:
		return fmt.Errorf("%s: %w: %s", what, ErrDenied, status.Convert(err).Message())
	case codes.ResourceExhausted:
		return fmt.Errorf("%s: %w: %s", what, ErrQuota, status.Convert(err).Message())
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

func (r *Router) lookup(ctx context.Context, request *pluginv1.LookupRequest) (*pluginv1.LookupResponse, error) {
	request.Call = callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return nil, fmt.Errorf("lookup: %w", err)
	}
	answer, err := api.Lookup(ctx, request)
	return answer, failed("lookup", err)
}

// Lookup returns the JSON of the objects that an index of a source has for a key: Lookup(ctx,
// "pods", "byNode", "n1"). With an empty index it returns all objects of the source.
func (r *Router) Lookup(ctx context.Context, source, index, key string) ([]json.RawMessage, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Index: index, Key: key})
	objects := make([]json.RawMessage, 0, len(answer.GetObjects()))
	for _, o := range answer.GetObjects() {
		objects = append(objects, o)
	}
	return objects, err
}

// Count returns the number of objects that [Router.Lookup] would return.
func (r *Router) Count(ctx context.Context, source, index, key string) (int, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Index: index, Key: key, Count: true})
	return int(answer.GetCount()), err
}

// Get returns the JSON of an object of a source, or nil if there is none.
func (r *Router) Get(ctx context.Context, source, namespace, name string) (json.RawMessage, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Get: &pluginv1.ObjectName{Namespace: namespace, Name: name}})
	if err != nil || len(answer.GetObjects()) == 0 {
		return nil, err
	}
	return answer.GetObjects()[0], nil
}

// KVGet returns the value of a key in the handler's store. ok is false if there is none.
func (r *Router) KVGet(ctx context.Context, key string) (value []byte, ok bool, err error) {
	call := callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("kv: %w", err)
	}
	answer, err := api.KVGet(ctx, &pluginv1.KVGetRequest{Call: call, Key: key})
	return answer.GetValue(), answer.GetFound(), failed("kv", err)
}

// KVSet stores a value for a duration (0: without expiry; less than a millisecond counts as one).
//
//   - With the context of a handler: the value is stored only if the call succeeds, which may
//     concern further deltas, and the handler returns no error but ErrDrop.
//   - With another context: the value is stored at once.
func (r *Router) KVSet(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	ms := ttl.Milliseconds()
	if ttl > 0 {
		ms = max(ms, 1)
	}
	call := callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	_, err = api.KVSet(ctx, &pluginv1.KVSetRequest{Call: call, Key: key, Value: value, TtlMs: ms})
	return failed("kv", err)
}

// KVDelete removes a key. The key may be absent.
func (r *Router) KVDelete(ctx context.Context, key string) error {
	call := callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	_, err = api.KVDelete(ctx, &pluginv1.KVDeleteRequest{Call: call, Key: key})
	return failed("kv", err)
}

// Level is the severity of a log line.
type Level int32

// The levels of [Router.Log].
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Log writes a line to the router's log, with a level. The router also logs the output of the
// plugin: stdout as information, stderr as warnings.
func (r *Router) Log(ctx context.Context, level Level, text string) error {
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	_, err = api.Log(ctx, &pluginv1.LogRequest{Level: pluginv1.Level(level), Text: text})
	return failed("log", err)
}

func (r *Router) close() {
	if r != nil && r.conn != nil {
		_ = r.conn.Close()
	}
}
