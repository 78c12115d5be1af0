// Package processtest runs a native plugin in the process of a test, over gRPC, with a fake router.
package processtest

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/sdk/process"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// Options is the environment of the plugin.
type Options struct {
	Config string            // JSON; empty: none
	KV     map[string]string // its store; nil: not granted
	// the results of look-ups, by "source", "source/index/key" or "source/namespace/name"; nil: not
	// granted
	Objects map[string][]json.RawMessage
}

// Plugin is a running plugin. It runs until the test ends.
type Plugin struct {
	t   testing.TB
	api pluginv1.HandlerClient
	fake
}

// Result is the plugin's answer for a delta.
type Result struct {
	Verdict string // ok, retry, drop or fail
	Message string // the reason of retry and fail
	Events  []Event
}

// Event is an event that the router would deliver.
type Event struct {
	Type, Subject string
	Data          json.RawMessage
}

// Start starts a plugin. The test fails if the plugin rejects its configuration.
func Start(t testing.TB, p process.Plugin, o Options) *Plugin {
	t.Helper()
	started, refused := Try(t, p, o)
	if refused != "" {
		t.Fatalf("the plugin refuses its configuration: %s", refused)
	}
	return started
}

// Try starts a plugin. refused is the reason why the plugin rejects its configuration; empty: it
// accepts it.
func Try(t testing.TB, p process.Plugin, o Options) (started *Plugin, refused string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "p") //nolint:usetesting // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	started = &Plugin{t: t, fake: fake{kv: maps.Clone(o.KV), objects: o.Objects}}
	host := filepath.Join(folder, "host")
	serve(t, host, func(g *grpc.Server) { pluginv1.RegisterHostServer(g, &started.fake) })
	server := process.NewServer(p)
	plugin := filepath.Join(folder, "plugin")
	serve(t, plugin, func(g *grpc.Server) { server.Register(g) })
	t.Cleanup(server.Close)
	conn, err := grpc.NewClient("unix:"+plugin, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	started.api = pluginv1.NewHandlerClient(conn)
	if o.Config == "" {
		o.Config = "null"
	}
	answer, err := started.api.Configure(t.Context(), &pluginv1.ConfigureRequest{
		Config: o.Config, Handler: "test", Cluster: "test", HostAddress: "unix:" + host,
	})
	if err != nil {
		t.Fatalf("Configure: %v", err)
	}
	return started, answer.GetError()
}

// serve serves a socket until the test ends.
func serve(t testing.TB, path string, register func(*grpc.Server)) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(listener)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
}

// Handle passes a batch to the plugin, and returns a result for each delta. It passes only the
// Object of Deleted and Deselected.
func (p *Plugin) Handle(deltas ...process.Delta) []Result {
	p.t.Helper()
	request := &pluginv1.HandleRequest{Call: 1}
	for _, d := range deltas {
		wire := &pluginv1.Delta{
			Op: pluginv1.Op(d.Op), Source: d.Source, Cluster: d.Cluster, Resource: d.Resource, Kind: d.Kind, Namespace: d.Namespace,
			Name: d.Name, Uid: d.UID, ResourceVersion: d.ResourceVersion, NewObject: d.Object, OldObject: d.OldObject,
			Initial: d.Initial, Stale: d.Stale, Redelivered: d.Redelivered, SeenUnixNano: d.Seen.UnixNano(),
			Late: d.Late, Repeat: d.Repeat, Suppressed: int64(d.Suppressed), TraceParent: d.TraceParent, With: d.With,
		}
		if !d.Since.IsZero() {
			wire.SinceUnixNano = d.Since.UnixNano()
		}
		if e := d.Event; e != nil {
			wire.Event = &pluginv1.RouteEvent{
				Id: e.ID, Type: e.Type, Source: e.Source, Subject: e.Subject, Route: e.Route, TimeUnixNano: e.Time.UnixNano(), Data: e.Data,
			}
		}
		if d.Op == process.Deleted || d.Op == process.Deselected {
			wire.NewObject, wire.OldObject = nil, d.Object
		}
		request.Deltas = append(request.Deltas, wire)
	}
	answer, err := p.api.Handle(p.t.Context(), request)
	if err != nil {
		p.t.Fatalf("Handle: %v", err)
	}
	results := make([]Result, len(deltas))
	for i := range results {
		results[i].Verdict = "ok"
	}
	for _, r := range answer.GetResults() {
		to := &results[r.GetDelta()]
		to.Verdict, to.Message = strings.ToLower(strings.TrimPrefix(r.GetVerdict().String(), "VERDICT_")), r.GetMessage()
		for _, e := range r.GetEvents() {
			to.Events = append(to.Events, Event{e.GetType(), e.GetSubject(), e.GetData()})
		}
	}
	return results
}

// KV returns the values of the plugin's store.
func (p *Plugin) KV() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.kv)
}

// Logged returns the lines that the plugin has logged.
func (p *Plugin) Logged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.logged...)
}

// fake is the fake router.
type fake struct {
	pluginv1.UnimplementedHostServer

	objects map[string][]json.RawMessage
	mu      sync.Mutex
	kv      map[string]string
	logged  []string
}

var errDenied = status.Error(codes.PermissionDenied, "not granted: see Options")

// Lookup implements pluginv1.HostServer.
func (f *fake) Lookup(_ context.Context, r *pluginv1.LookupRequest) (*pluginv1.LookupResponse, error) {
	if f.objects == nil {
		return nil, errDenied
	}
	name := r.GetSource()
	switch {
	case r.GetGet() != nil:
		name += "/" + r.GetGet().GetNamespace() + "/" + r.GetGet().GetName()
	case r.GetIndex() != "":
		name += "/" + r.GetIndex() + "/" + r.GetKey()
	}
	answer := &pluginv1.LookupResponse{Count: int64(len(f.objects[name]))}
	for _, o := range f.objects[name] {
		if !r.GetCount() {
			answer.Objects = append(answer.Objects, o)
		}
	}
	return answer, nil
}

// KVGet implements pluginv1.HostServer.
func (f *fake) KVGet(_ context.Context, r *pluginv1.KVGetRequest) (*pluginv1.KVGetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kv == nil {
		return nil, errDenied
	}
	value, found := f.kv[r.GetKey()]
	return &pluginv1.KVGetResponse{Value: []byte(value), Found: found}, nil
}

// KVSet implements pluginv1.HostServer.
func (f *fake) KVSet(_ context.Context, r *pluginv1.KVSetRequest) (*pluginv1.KVSetResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kv == nil {
		return nil, errDenied
	}
	f.kv[r.GetKey()] = string(r.GetValue())
	return &pluginv1.KVSetResponse{}, nil
}

// KVDelete implements pluginv1.HostServer.
func (f *fake) KVDelete(_ context.Context, r *pluginv1.KVDeleteRequest) (*pluginv1.KVDeleteResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kv == nil {
		return nil, errDenied
	}
	delete(f.kv, r.GetKey())
	return &pluginv1.KVDeleteResponse{}, nil
}

// Log implements pluginv1.HostServer.
func (f *fake) Log(_ context.Context, r *pluginv1.LogRequest) (*pluginv1.LogResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = append(f.logged, r.GetText())
	return &pluginv1.LogResponse{}, nil
}
