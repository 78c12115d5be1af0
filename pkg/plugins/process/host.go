package process

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

const maxLookupAnswer = 8 << 20 // bytes

// host serves the functions of the router to one process, at a socket in its folder. The grants of
// the handler decide which functions are allowed. A token authenticates the process.
type host struct {
	pluginv1.UnimplementedHostServer

	s       *settings
	granted map[string]bool // source, or source.index
	address string
	token   string
	server  *grpc.Server
	served  sync.WaitGroup

	mu    sync.Mutex
	calls map[uint64]*call // the running calls
	last  uint64
}

// call is a running call of Handle.
type call struct {
	*kv.Overlay

	batch []*event.Delta

	mu         sync.Mutex
	unanswered error // of a look-up, which postpones the deltas of the call
}

// fail keeps the error of a look-up without an answer.
func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = err
}

// failed returns the error of a look-up without an answer.
func (c *call) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unanswered == nil {
		return nil
	}
	return fmt.Errorf("a look-up of the plugin has no answer: %w", c.unanswered)
}

// newHost starts the service. A plugin without grants has none.
func newHost(s *settings, f *child.Folder) (*host, error) {
	h := &host{s: s, granted: make(map[string]bool), token: rand.Text(), calls: make(map[uint64]*call)}
	for _, name := range s.Allow.Lookup {
		h.granted[name] = true
	}
	if !s.Allow.any() {
		return h, nil
	}
	path := filepath.Join(f.Path, "host")
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	h.address = "unix:" + path
	h.server = grpc.NewServer(grpc.MaxRecvMsgSize(int(s.Limits.KV)+64<<10), grpc.UnaryInterceptor(h.authorize), grpc.NumStreamWorkers(0))
	pluginv1.RegisterHostServer(h.server, h)
	h.served.Go(func() { _ = h.server.Serve(listener) })
	return h, nil
}

func (h *host) close() {
	if h.server != nil {
		h.server.Stop()
		h.served.Wait()
	}
}

// authorize rejects requests without the token.
func (h *host) authorize(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	given := strings.Join(md.Get("authorization"), ",")
	if subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+h.token)) != 1 {
		return nil, status.Error(codes.Unauthenticated, "the token of Configure is missing")
	}
	return handle(ctx, request)
}

// begin starts the overlay of a call of Handle. commit applies its writes, and end discards it.
func (h *host) begin(batch []*event.Delta) (id uint64, c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	c = &call{Overlay: h.newOverlay(), batch: batch}
	h.calls[h.last] = c
	return h.last, c
}

func (h *host) newOverlay() *kv.Overlay {
	return kv.NewOverlay(h.s.env.KV, h.s.clock, int64(h.s.Limits.KV))
}

func (h *host) end(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, id)
}

// call returns a running call.
func (h *host) call(id uint64) (*call, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.calls[id]; c != nil {
		return c, nil
	}
	return nil, status.Error(codes.FailedPrecondition, "there is no such call of Handle any more")
}

func denied(what string) error {
	return status.Errorf(codes.PermissionDenied, "%s is not granted to this handler: see its allow", what)
}

// Lookup implements pluginv1.HostServer.
func (h *host) Lookup(ctx context.Context, r *pluginv1.LookupRequest) (*pluginv1.LookupResponse, error) {
	if len(h.granted) == 0 || !h.granted[r.GetSource()] && (r.GetIndex() == "" || !h.granted[r.GetSource()+"."+r.GetIndex()]) {
		return nil, denied("this look-up")
	}
	// Outside a call the sources may not have synced. A route waits for them before it calls.
	c, err := h.call(r.GetCall())
	if err != nil {
		return nil, err
	}
	q := plugins.LookupQuery{Source: r.GetSource(), Index: r.GetIndex(), Value: r.GetKey(), Count: r.GetCount(), Deltas: c.batch}
	if get := r.GetGet(); get != nil {
		if get.GetName() == "" {
			return &pluginv1.LookupResponse{}, nil
		}
		q.Namespace, q.Name, q.Count = get.GetNamespace(), get.GetName(), false
	}
	found, count, err := plugins.Ask(ctx, h.s.env.Lookup, q)
	switch {
	case plugins.ClassOf(err) == plugins.Rejected:
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		c.fail(err)
		return nil, status.Error(codes.Unavailable, err.Error())
	case q.Count:
		return &pluginv1.LookupResponse{Count: int64(count)}, nil
	}
	answer, size := &pluginv1.LookupResponse{Count: int64(len(found))}, 0
	for _, o := range found {
		if size += len(o.JSON()); size > maxLookupAnswer {
			return nil, status.Error(codes.ResourceExhausted, "there are more than 8 MiB of objects")
		}
		answer.Objects = append(answer.Objects, o.JSON())
	}
	return answer, nil
}

// Log implements pluginv1.HostServer.
func (h *host) Log(ctx context.Context, r *pluginv1.LogRequest) (*pluginv1.LogResponse, error) {
	if !h.s.Allow.Log {
		return nil, denied("the log")
	}
	level := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}[min(max(r.GetLevel(), 0), 3)]
	h.s.lines.Line(ctx, level, "log", []byte(r.GetText()))
	return &pluginv1.LogResponse{}, nil
}

// memory returns the view of a call on the handler's KV store. Without a call it returns an overlay
// that written commits.
func (h *host) memory(call uint64, key string) (*kv.Overlay, error) {
	switch {
	case !h.s.Allow.KV:
		return nil, denied("kv")
	case key == "" || len(key) > kv.MaxKey:
		return nil, status.Errorf(codes.InvalidArgument, "a key has 1 to %d bytes", kv.MaxKey)
	case call == 0:
		return h.newOverlay(), nil
	}
	c, err := h.call(call)
	if err != nil {
		return nil, err
	}
	return c.Overlay, nil
}

// KVGet implements pluginv1.HostServer.
func (h *host) KVGet(_ context.Context, r *pluginv1.KVGetRequest) (*pluginv1.KVGetResponse, error) {
	o, err := h.memory(r.GetCall(), r.GetKey())
	if err != nil {
		return nil, err
	}
	value, found := o.Get(r.GetKey())
	return &pluginv1.KVGetResponse{Found: found, Value: value}, nil
}

// KVSet implements pluginv1.HostServer.
func (h *host) KVSet(_ context.Context, r *pluginv1.KVSetRequest) (*pluginv1.KVSetResponse, error) {
	o, err := h.memory(r.GetCall(), r.GetKey())
	if err != nil {
		return nil, err
	}
	if r.GetTtlMs() < 0 {
		return nil, status.Error(codes.InvalidArgument, "ttl_ms is negative")
	}
	return &pluginv1.KVSetResponse{}, written(o, r.GetCall(), o.Set(r.GetKey(), slices.Clone(r.GetValue()), r.GetTtlMs()))
}

// KVDelete implements pluginv1.HostServer.
func (h *host) KVDelete(_ context.Context, r *pluginv1.KVDeleteRequest) (*pluginv1.KVDeleteResponse, error) {
	o, err := h.memory(r.GetCall(), r.GetKey())
	if err != nil {
		return nil, err
	}
	return &pluginv1.KVDeleteResponse{}, written(o, r.GetCall(), o.Delete(r.GetKey()))
}

// written commits a write without a call, and returns the error of the write as a status.
func written(o *kv.Overlay, call uint64, err error) error {
	if err == nil && call == 0 {
		err = o.Commit()
	}
	if errors.Is(err, plugins.ErrKVFull) {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return err
}
