package otlp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestContract(t *testing.T) {
	both(t, func(t *testing.T, _ *receiver, config string) {
		plugintest.RunSink(t, plugintest.Sink{Kind: otlp.Kind(), Config: config + "}", Env: sinktest.Env("bus")})
	})
}

// TestRecord checks the record of an event: its attributes, its object and its cluster.
func TestRecord(t *testing.T) {
	both(t, func(t *testing.T, r *receiver, config string) {
		e := sinktest.Events(t, "web", 1, 10)[0]
		e.Redelivered, e.Type, e.TraceParent = true, "a\xffb", "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01"
		if errs := open(t, config+", headers: {Authorization: s3cret}}").Write(t.Context(), []event.Event{e, sinktest.Events(t, "web", 2, 10)[1]}); errs != nil {
			t.Fatal(errs)
		}
		if r.headers.Get("Authorization") != "s3cret" || len(r.requests) != 1 || len(r.requests[0].GetResourceLogs()) != 1 {
			t.Fatalf("%d requests with %v", len(r.requests), r.headers)
		}
		of := r.requests[0].GetResourceLogs()[0]
		got := map[string]string{}
		for _, a := range append(of.GetResource().GetAttributes(), of.GetScopeLogs()[0].GetLogRecords()[0].GetAttributes()...) {
			got[a.GetKey()] = a.GetValue().GetStringValue()
		}
		want := map[string]string{
			"service.name": "deltarouter", "k8s.cluster.name": "test", "k8s.namespace.name": "default", "k8s.pod.name": "web-0", "k8s.pod.uid": "uid-web-0",
			"k8s.object.kind": "Pod", "k8s.object.name": "web-0", "k8s.object.uid": "uid-web-0", "k8s.object.resource_version": "1", "k8s.object.api_version": "v1",
			"cloudevents.event_id": e.ID, "cloudevents.event_source": "/clusters/test/sources/pods", "cloudevents.event_spec_version": "1.0",
			"cloudevents.event_type": "a\uFFFDb", "cloudevents.event_subject": "default/web-0",
			"deltarouter.route": "r", "deltarouter.source": "pods", "deltarouter.op": "added", "deltarouter.redelivered": "",
		}
		for name, value := range want {
			if text, ok := got[name]; !ok || text != value {
				t.Errorf("%s is %q, want %q", name, text, value)
			}
		}
		record := of.GetScopeLogs()[0].GetLogRecords()[0]
		if trace := fmt.Sprintf("00-%x-%x-%02x", record.GetTraceId(), record.GetSpanId(), record.GetFlags()); trace != e.TraceParent {
			t.Errorf("the record belongs to %s", trace)
		}
		if len(got) != len(want) || record.GetBody().GetStringValue() != string(e.Data) || record.GetTimeUnixNano() != 1e9 || record.GetObservedTimeUnixNano() <= 1e9 {
			t.Errorf("got %v", record)
		}
	})
}

// TestVerdicts checks the meaning of the responses, and the number of requests.
func TestVerdicts(t *testing.T) {
	// Guarantee: refused-alone
	exhausted, err := status.New(codes.ResourceExhausted, "s3cret").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	must.Succeed(t, err)
	partly := func(n int64) func(ask) (answer, error) {
		return func(ask) (answer, error) {
			return &collector.ExportLogsServiceResponse{PartialSuccess: &collector.ExportLogsPartialSuccess{RejectedLogRecords: n, ErrorMessage: "s3cret"}}, nil
		}
	}
	fails := func(err error) func(ask) (answer, error) { return func(ask) (answer, error) { return nil, err } }
	both(t, func(t *testing.T, r *receiver, config string) {
		sink, all := open(t, config+", maxEvents: 4}"), sinktest.Events(t, "web", 8, 10)
		bad := all[2].ID
		for _, test := range []struct {
			name, want, says string
			refuse           func(ask) (answer, error)
			asked            int
			after            time.Duration
		}{
			{"taken", "dddddddd", "", nil, 2, 0},
			{"a warning", "dddddddd", "", partly(0), 2, 0},
			{"some rejected", "rrrrrrrr", "rejected 1 of the 4 records", partly(1), 2, 0},
			{"all rejected", "rrrrrrrr", "rejected all 4 records", partly(4), 2, 0},
			{"not now", "uuuuuuuu", "", fails(exhausted.Err()), 1, 7 * time.Second},
			{"unavailable", "uuuuuuuu", "", fails(status.Error(codes.Unavailable, "s3cret")), 1, 0},
			{"permanent", "rrrrrrrr", "", fails(status.Error(codes.Internal, "s3cret")), 14, 0},
			{"nobody", "uuuuuuuu", "authentication failed", fails(status.Error(codes.Unauthenticated, "s3cret")), 1, 0},
			{"one at fault", "ddrddddd", "", func(request ask) (answer, error) {
				if slices.Contains(ids(request), bad) {
					return nil, status.Error(codes.InvalidArgument, "s3cret")
				}
				return nil, nil
			}, 6, 0},
			{"unavailable in the middle", "dddduuuu", "", func(request ask) (answer, error) {
				if slices.Contains(ids(request), all[6].ID) {
					return nil, status.Error(codes.Unavailable, "")
				}
				return nil, nil
			}, 2, 0},
			{"unavailable in the middle of halves", "dduuuuuu", "", func(request ask) (answer, error) {
				switch got := ids(request); {
				case len(got) == 4:
					return nil, status.Error(codes.InvalidArgument, "")
				case slices.Contains(got, bad):
					return nil, status.Error(codes.Unavailable, "")
				}
				return nil, nil
			}, 3, 0},
		} {
			t.Run(test.name, func(t *testing.T) {
				r.set(test.refuse)
				r.asked, r.requests = 0, nil
				errs := sink.Write(t.Context(), all)
				if v := sinktest.Verdicts(8, errs); v != test.want || r.asked != test.asked {
					t.Fatalf("%s after %d requests, want %s after %d: %v", v, r.asked, test.want, test.asked, errs)
				}
				if test.name != "a warning" && len(r.ids()) != strings.Count(test.want, "d") {
					t.Errorf("%d records are kept", len(r.ids()))
				}
				for _, err := range errs {
					if err != nil && (!strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), `otlp "bus": http://127.0.0.1:`) ||
						strings.Contains(err.Error(), "s3cret") || plugins.RetryAfter(err) != test.after) {
						t.Errorf("got %v, after %v", err, plugins.RetryAfter(err))
					}
				}
			})
		}
	})
}

// TestExhausted: RESOURCE_EXHAUSTED without a retry delay concerns the size of a request, which is
// halved.
func TestExhausted(t *testing.T) {
	r := &receiver{refuse: func(request ask) (answer, error) {
		if len(ids(request)) > 3 {
			return nil, status.Error(codes.ResourceExhausted, "too large")
		}
		return nil, nil
	}}
	at, _ := serveGRPC(t, r, "127.0.0.1:0")
	if errs := open(t, "endpoint: http://"+at).Write(t.Context(), sinktest.Events(t, "web", 10, 10)); errs != nil || len(r.ids()) != 10 {
		t.Errorf("%d records: %v", len(r.ids()), errs)
	}
}

// TestAway: nothing is delivered while the receiver is down. When it is back, each event arrives
// once.
func TestAway(t *testing.T) {
	r := &receiver{}
	at, stop := serveGRPC(t, r, "127.0.0.1:0")
	sink, all := open(t, "{endpoint: 'http://"+at+"'}"), sinktest.Events(t, "web", 30, 10)
	if errs := sink.Write(t.Context(), all[:10]); errs != nil {
		t.Fatal(errs)
	}
	stop()
	for range 3 {
		errs := sink.Write(t.Context(), all[10:20])
		if v := sinktest.Verdicts(10, errs); v != strings.Repeat("u", 10) || !strings.Contains(errs[0].Error(), "http://127.0.0.1:") {
			t.Fatalf("got %s: %v", v, errs)
		}
	}
	serveGRPC(t, r, at)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for errs := sink.Write(ctx, all[10:]); errs != nil; errs = sink.Write(ctx, all[10:]) {
		if v := sinktest.Verdicts(20, errs); v != strings.Repeat("u", 20) || ctx.Err() != nil {
			t.Fatalf("got %s: %v", v, errs)
		}
		<-tick.C
	}
	got := r.ids()
	if len(got) != 30 {
		t.Fatalf("%d records of 30 events", len(got))
	}
	for i, id := range got {
		if id != all[i].ID {
			t.Errorf("record %d is another", i)
		}
	}
}

// TestBytes: a request does not exceed the configured size, except for a single event.
func TestBytes(t *testing.T) {
	both(t, func(t *testing.T, r *receiver, config string) {
		all := append(sinktest.Events(t, "web", 5, 3_000), sinktest.Events(t, "web", 1, 50_000)...)
		if errs := open(t, config+", maxBytes: 10Ki}").Write(t.Context(), all); errs != nil {
			t.Fatal(errs)
		}
		var sizes []int
		for _, request := range r.requests {
			sizes = append(sizes, len(ids(request)))
		}
		if fmt.Sprint(sizes) != "[2 2 1 1]" {
			t.Errorf("requests of %v events", sizes)
		}
	})
}

// TestSilence: an unresponsive receiver costs one timeout, and a context that is done ends the
// wait.
func TestSilence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	for _, protocol := range []string{"grpc", "http"} {
		config := fmt.Sprintf("{endpoint: 'http://%s', protocol: %s, timeout: ", l.Addr(), protocol)
		errs := open(t, config+"50ms}").Write(t.Context(), sinktest.Events(t, "web", 3, 10))
		if v := sinktest.Verdicts(3, errs); v != "uuu" || !strings.Contains(errs[0].Error(), "no answer within 50ms") {
			t.Errorf("%s: got %s: %v", protocol, v, errs)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		errs = open(t, config+"5m}").Write(ctx, sinktest.Events(t, "web", 3, 10))
		if v := sinktest.Verdicts(3, errs); v != "uuu" || !strings.Contains(errs[0].Error(), "context canceled") {
			t.Errorf("%s: got %s: %v", protocol, v, errs)
		}
	}
}

// TestHeaderFile: a header in a file is read again. A missing file is a temporary error.
func TestHeaderFile(t *testing.T) {
	both(t, func(t *testing.T, r *receiver, config string) {
		file := filepath.Join(t.TempDir(), "token")
		sink := open(t, fmt.Sprintf("%s, headers: {x-token: {file: %q}}}", config, file))
		if errs := sink.Write(t.Context(), sinktest.Events(t, "web", 1, 10)); sinktest.Verdicts(1, errs) != "u" || !strings.Contains(errs[0].Error(), "header x-token: secret file") {
			t.Errorf("got %v", errs)
		}
		for _, token := range []string{"one", "another"} {
			must.Succeed(t, os.WriteFile(file, []byte(token), 0o600))
			if errs := sink.Write(t.Context(), sinktest.Events(t, "web", 1, 10)); errs != nil || r.headers.Get("X-Token") != token {
				t.Errorf("%v: %v", errs, r.headers)
			}
		}
	})
}

func TestProblems(t *testing.T) {
	for _, test := range []struct{ config, path, want string }{
		{"{}", "", "endpoint is missing"},
		{"endpoint: collector:4317", "endpoint", "must be like"},
		{"endpoint: http://u:s3cret@h:1", "endpoint", "has a user or password"},
		{"endpoint: http://h", "endpoint", "needs a port and no path"},
		{"endpoint: http://h:4317/v1/logs", "endpoint", "needs a port and no path"},
		{"{endpoint: http://h:4317, tls: {serverName: x}}", "tls", "requires an endpoint with https://"},
		{"{endpoint: http://h:4317, headers: {a b: x}}", `headers["a b"]`, "is not a header name"},
		{"{endpoint: http://h:4317, headers: {x-bin: x}}", "headers.x-bin", "is not a header name"},
		{"{endpoint: http://h:4317, headers: {Content-Type: x}}", "headers.Content-Type", "set by the router itself"},
	} {
		problems := otlp.Kind().Check(plugintest.Node(t, test.config))
		if len(problems) != 1 || problems[0].Path != test.path || !strings.Contains(problems[0].Message, test.want) || strings.Contains(problems.Error(), "s3cret") {
			t.Errorf("%s: got %v, want one problem at %s with %q", test.config, problems, test.path, test.want)
		}
	}
}

// TestProbe: a probe connects and sends no request.
func TestProbe(t *testing.T) {
	both(t, func(t *testing.T, r *receiver, config string) {
		if err := otlp.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config+"}")); err != nil || r.asked != 0 {
			t.Errorf("%v after %d requests", err, r.asked)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	at := l.Addr().String()
	_ = l.Close()
	for config, want := range map[string]string{
		"endpoint: http://" + at:  "http://" + at + ": ",
		"endpoint: https://" + at: "https://" + at + ": ",
		"{endpoint: http://" + at + ", headers: {a: {env: NO_SUCH_VARIABLE}}}": "header a: ",
	} {
		if err := otlp.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestInOrder: whichever request fails, no event is delivered before an earlier event of its key
// that will be retried.
func TestInOrder(t *testing.T) {
	// Guarantee: key-order-in-batch
	both(t, func(t *testing.T, r *receiver, config string) {
		all := sinktest.Keyed(t, 12, "ab")
		sink := open(t, config+", maxEvents: 3}")
		for _, code := range []codes.Code{codes.Unavailable, codes.InvalidArgument} {
			for bad := range 4 {
				n, before := 0, len(r.ids())
				r.set(func(ask) (answer, error) {
					if n++; n == bad+1 {
						return nil, status.Error(code, "no")
					}
					return nil, nil
				})
				errs := sink.Write(t.Context(), all)
				plugintest.CheckOrder(t, all, errs)
				again := all[:0:0]
				for i, err := range errs {
					if err != nil && plugins.ClassOf(err) != plugins.Rejected {
						again = append(again, all[i])
					}
				}
				if len(again) > 0 {
					sink.Write(t.Context(), again)
				}
				if got := r.ids()[before:]; !slices.Equal(got, sinktest.IDs(all)) {
					t.Errorf("%v at request %d: it took %v", code, bad, got)
				}
			}
		}
	})
}
