package otlp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type (
	ask    = *collector.ExportLogsServiceRequest
	answer = *collector.ExportLogsServiceResponse
)

// receiver stores the records that it accepts. refuse may respond before that.
type receiver struct {
	collector.UnimplementedLogsServiceServer
	refuse func(ask) (answer, error)

	mu       sync.Mutex
	requests []ask // accepted
	asked    int
	headers  http.Header // of the last
}

// Export implements the service of gRPC.
func (r *receiver) Export(ctx context.Context, request ask) (answer, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	h := http.Header{}
	for name, values := range md {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return r.take(h, request)
}

func (r *receiver) take(h http.Header, request ask) (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	r.headers = h
	if r.refuse != nil {
		if a, err := r.refuse(request); a != nil || err != nil {
			return a, err
		}
	}
	r.requests = append(r.requests, request)
	return &collector.ExportLogsServiceResponse{}, nil
}

func (r *receiver) set(refuse func(ask) (answer, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

// ids returns the ids of the accepted events, in order.
func (r *receiver) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, request := range r.requests {
		all = append(all, ids(request)...)
	}
	return all
}

// records returns the records of a request.
func records(request ask) (all []*logs.LogRecord) {
	for _, of := range request.GetResourceLogs() {
		for _, scope := range of.GetScopeLogs() {
			all = append(all, scope.GetLogRecords()...)
		}
	}
	return all
}

// values returns the values of an attribute of each record of a request.
func values(request ask, name string) (all []string) {
	for _, record := range records(request) {
		for _, a := range record.GetAttributes() {
			if a.GetKey() == name {
				all = append(all, a.GetValue().GetStringValue())
			}
		}
	}
	return all
}

func ids(request ask) []string { return values(request, "cloudevents.event_id") }

// routed returns the route and the subject of each record.
func routed(request ask) []string {
	all, subjects := values(request, "deltarouter.route"), values(request, "cloudevents.event_subject")
	for i := range all {
		all[i] += " " + subjects[i]
	}
	return all
}

func bodies(request ask) (all []string) {
	for _, record := range records(request) {
		all = append(all, record.GetBody().GetStringValue())
	}
	return all
}

// ServeHTTP implements http.Handler. It sends a gRPC status as an HTTP status.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	request := &collector.ExportLogsServiceRequest{}
	if err != nil || req.URL.Path != "/v1/logs" || req.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	a, err := r.take(req.Header, request)
	if err != nil {
		codes := map[codes.Code]int{
			codes.Unavailable: 503, codes.InvalidArgument: 400, codes.Unauthenticated: 401, codes.ResourceExhausted: 429, codes.Internal: 500,
		}
		if status.Code(err) == 8 {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(codes[status.Code(err)])
		return
	}
	text, _ := proto.Marshal(a)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(text)
}

// serveGRPC serves until stop is called.
func serveGRPC(t *testing.T, r *receiver, address string, options ...grpc.ServerOption) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must.Succeed(t, err)
	s := grpc.NewServer(options...)
	collector.RegisterLogsServiceServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	stop = sync.OnceFunc(func() {
		s.Stop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// both runs a test with each protocol. config is the beginning of a configuration, without its
// closing brace.
func both(t *testing.T, test func(t *testing.T, r *receiver, config string)) {
	t.Helper()
	t.Run("grpc", func(t *testing.T) {
		r := &receiver{}
		at, _ := serveGRPC(t, r, "127.0.0.1:0")
		test(t, r, "{endpoint: 'http://"+at+"'")
	})
	t.Run("http", func(t *testing.T) {
		r := &receiver{}
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		test(t, r, "{endpoint: '"+s.URL+"', protocol: http")
	})
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	return sinktest.Open(t, otlp.Kind(), config)
}
