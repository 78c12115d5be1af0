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

	pluginv1 "github.com/deltarouter/deltarouter/proto/plugin/v1"
)

// maxAnswer is how many bytes an answer of the router has at most.
const maxAnswer = 2 << 30

// The errors of what a plugin asks of the router. What it may ask is granted in the handler's
// `allow`.
var (
	ErrDenied = errors.New("not granted to this handler")
	ErrQuota  = errors.New("over the handler's quota")
)

// Router is what a plugin may ask of the router that started it. It is safe for concurrent use. The
// methods take the context that the handler was called with; look-ups work only there.
type Router struct {
	Handler string // the handler's name in the router's configuration
	Cluster string

	config string
	token  string
	conn   *grpc.ClientConn // nil: nothing is granted
	api    pluginv1.HostClient
}

// newRouter prepares the connection to the router; it is made when it is needed.
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

// callKey is where the context of a handler has the number of its call.
type callKey struct{}

func callOf(ctx context.Context) uint64 {
	id, _ := ctx.Value(callKey{}).(uint64)
	return id
}

// ask prepares a request.
func (r *Router) ask(ctx context.Context) (context.Context, pluginv1.HostClient, error) {
	if r.api == nil {
		return nil, nil, ErrDenied
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.token), r.api, nil
}

// failed makes an error of one of gRPC.
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

// Lookup returns the JSON of the objects that an index of a source has under a key: Lookup(ctx,
// "pods", "byNode", "n1"). With an empty index it returns all objects of the source.
func (r *Router) Lookup(ctx context.Context, source, index, key string) ([]json.RawMessage, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Index: index, Key: key})
	objects := make([]json.RawMessage, 0, len(answer.GetObjects()))
	for _, o := range answer.GetObjects() {
		objects = append(objects, o)
	}
	return objects, err
}

// Count returns how many objects [Router.Lookup] would find.
func (r *Router) Count(ctx context.Context, source, index, key string) (int, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Index: index, Key: key, Count: true})
	return int(answer.GetCount()), err
}

// Get returns the JSON of one object of a source, nil if there is none.
func (r *Router) Get(ctx context.Context, source, namespace, name string) (json.RawMessage, error) {
	answer, err := r.lookup(ctx, &pluginv1.LookupRequest{Source: source, Get: &pluginv1.ObjectName{Namespace: namespace, Name: name}})
	if err != nil || len(answer.GetObjects()) == 0 {
		return nil, err
	}
	return answer.GetObjects()[0], nil
}

// KVGet returns what this handler keeps under a key; ok is false if there is nothing.
func (r *Router) KVGet(ctx context.Context, key string) (value []byte, ok bool, err error) {
	call := callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("kv: %w", err)
	}
	answer, err := api.KVGet(ctx, &pluginv1.KVGetRequest{Call: call, Key: key})
	return answer.GetValue(), answer.GetFound(), failed("kv", err)
}

// KVSet keeps a value for some time (0: for ever; less than a millisecond counts as one). With the
// context of a handler it counts only if the call succeeds, which may hold other deltas, too; with
// another it counts at once.
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

// KVDelete forgets a key, which may be absent.
func (r *Router) KVDelete(ctx context.Context, key string) error {
	call := callOf(ctx)
	ctx, api, err := r.ask(ctx)
	if err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	_, err = api.KVDelete(ctx, &pluginv1.KVDeleteRequest{Call: call, Key: key})
	return failed("kv", err)
}

// Level is how important a line of the log is.
type Level int32

// The levels of [Router.Log].
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// Log writes a line to the router's log, with a level. What is printed is logged, too, without
// asking: stdout as information, stderr as warnings.
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
