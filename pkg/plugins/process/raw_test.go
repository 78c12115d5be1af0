package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// raw is a plugin without go-plugin and the SDK that violates the protocol. A list of words in its
// configuration, and the names of objects, decide how.
type raw struct {
	pluginv1.UnimplementedHandlerServer

	server *grpc.Server
	health *health.Server
	words  []string
	asked  *pluginv1.ConfigureRequest
}

// asRaw serves until it is stopped.
func asRaw() {
	l, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "raw"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := &raw{server: grpc.NewServer(grpc.ForceServerCodecV2(halfCodec{}), grpc.MaxRecvMsgSize(1<<30)), health: health.NewServer(), words: os.Args[2:]}
	desc := pluginv1.Handler_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		if desc.Methods[i].MethodName == "Handle" {
			desc.Methods[i].Handler = func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var request pluginv1.HandleRequest
				if err := read(&request); err != nil {
					return nil, err
				}
				return r.answer(&request)
			}
		}
	}
	r.server.RegisterService(&desc, r)
	if !r.says("no health") {
		grpc_health_v1.RegisterHealthServer(r.server, r.health)
	}
	if r.says("ill") {
		r.health.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	} else {
		r.health.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_SERVING)
	}
	if r.says("stubborn") || r.says("deaf to signals") {
		ossignal.Ignore(syscall.SIGTERM)
	}
	go func() { _ = r.server.Serve(l) }()
	fmt.Printf("1|1|unix|%s|grpc\n", l.Addr())
	if r.says("deaf to signals") {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	wait()
}

func (r *raw) says(word string) bool { return slices.Contains(r.words, word) }

// Describe implements pluginv1.HandlerServer.
func (r *raw) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	switch {
	case r.says("no description"):
		return nil, status.Error(codes.Internal, strings.Repeat("x", 1<<20))
	case r.says("large description"):
		return &pluginv1.DescribeResponse{Name: strings.Repeat("\x1b", 1<<20), ConfigSchema: "{"}, nil
	}
	return &pluginv1.DescribeResponse{}, nil
}

// Configure implements pluginv1.HandlerServer.
func (r *raw) Configure(_ context.Context, asked *pluginv1.ConfigureRequest) (*pluginv1.ConfigureResponse, error) {
	r.asked = asked
	switch {
	case r.says("ends at Configure"):
		os.Exit(7)
	case r.says("ends at the second Configure"):
		f, err := os.OpenFile(os.Getenv("ONCE"), os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			os.Exit(8)
		}
		f.Close()
	case r.says("refuses at length"):
		return &pluginv1.ConfigureResponse{Error: strings.Repeat("no \x1b", 1<<20)}, nil
	}
	return &pluginv1.ConfigureResponse{}, nil
}

// answer answers a batch as the names of its objects ask.
func (r *raw) answer(request *pluginv1.HandleRequest) (any, error) {
	answer := &pluginv1.HandleResponse{}
	add := func(r *pluginv1.Result) { answer.Results = append(answer.Results, r) }
	for i, d := range request.GetDeltas() {
		name, _ := json.Marshal(d.GetName())
		ok := &pluginv1.Result{Delta: uint32(i), Events: []*pluginv1.Event{{Data: name}}}
		verb, _, _ := strings.Cut(d.GetName(), ".")
		switch verb {
		case "none": // means ok
		case "other":
			ok.Delta = uint32(len(request.GetDeltas()))
		case "far":
			ok.Delta = 1<<32 - 1
		case "twice":
			add(ok)
		case "keep", "keeptwice": // and answers twice
			if err := r.keep(request.GetCall(), verb); err != nil {
				return nil, err
			}
			if verb == "keeptwice" {
				add(ok)
			}
		case "verdict":
			ok = &pluginv1.Result{Delta: uint32(i), Verdict: 9}
		case "eventful":
			ok.Verdict = pluginv1.Verdict_VERDICT_FAIL
		case "long":
			ok = &pluginv1.Result{Delta: uint32(i), Verdict: pluginv1.Verdict_VERDICT_FAIL, Message: strings.Repeat("long \x1b[31m\n", 300_000)}
		case "latin": // text that is not UTF-8
			return halfMessage("\x0a\x06\x10\x03\x1a\x02\xff\xfe"), nil
		case "noise":
			return halfMessage("\xff\xff\xff\xff"), nil
		case "badjson":
			ok.Events[0].Data = []byte("\"\xff\"")
		case "status":
			return nil, status.Error(codes.Internal, strings.Repeat("status \x1b", 100_000))
		case "toolong": // more than the 16 MiB that a client accepts
			return nil, status.Error(codes.Internal, strings.Repeat("status ", 2_500_000))
		case "early":
			return nil, status.Error(codes.DeadlineExceeded, "a deadline of the plugin's own")
		case "unlisten":
			go r.server.Stop()
			select {}
		case "ill":
			r.health.SetServingStatus("plugin", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		case "count":
			ok.Events[0].Data = fmt.Append(nil, len(request.GetDeltas()))
		case "size": // size.N: an event of N bytes
			var n int
			if _, err := fmt.Sscanf(d.GetName(), "size.%d", &n); err == nil {
				ok.Events[0].Data = []byte(`"` + strings.Repeat("x", n-2) + `"`)
			}
		}
		add(ok)
	}
	return answer, nil
}

// keep stores a value at the router.
func (r *raw) keep(call uint64, key string) error {
	conn, err := grpc.NewClient(r.asked.GetHostAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+r.asked.GetHostToken())
	_, err = pluginv1.NewHostClient(conn).KVSet(ctx, &pluginv1.KVSetRequest{Call: call, Key: key, Value: []byte("x")})
	return err
}

// halfMessage is sent unencoded.
type halfMessage []byte

// halfCodec encodes messages, and leaves bytes unchanged.
type halfCodec struct{}

var _ encoding.CodecV2 = halfCodec{}

func (halfCodec) Marshal(v any) (mem.BufferSlice, error) {
	if text, ok := v.(halfMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(text)}, nil
	}
	text, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(text)}, err
}

func (halfCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

func (halfCodec) Name() string { return "proto" }
