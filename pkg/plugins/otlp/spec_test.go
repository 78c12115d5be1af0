package otlp_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestStatusOfGRPC: each status is retryable or permanent by the specification of OTLP, with and
// without a RetryInfo.
func TestStatusOfGRPC(t *testing.T) {
	// Guarantee: otlp-delivery
	r := &receiver{}
	at, _ := serveGRPC(t, r, "127.0.0.1:0")
	sink, all := open(t, "endpoint: http://"+at), sinktest.Events(t, "web", 2, 10)
	for code, want := range map[codes.Code]string{
		codes.Canceled: "uu", codes.DeadlineExceeded: "uu", codes.Aborted: "uu", codes.OutOfRange: "uu", codes.Unavailable: "uu", codes.DataLoss: "uu",
		codes.ResourceExhausted: "rr", codes.Unknown: "rr", codes.InvalidArgument: "rr", codes.NotFound: "rr", codes.AlreadyExists: "rr",
		codes.PermissionDenied: "uu", codes.FailedPrecondition: "rr", codes.Unimplemented: "rr", codes.Internal: "rr", codes.Unauthenticated: "uu",
	} {
		for _, delay := range []time.Duration{-1, 0, 7 * time.Second, 1000 * time.Hour} {
			answered := status.New(code, "s3cret")
			if delay >= 0 {
				var err error
				if answered, err = answered.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err != nil {
					t.Fatal(err)
				}
			}
			want, after := want, time.Duration(0)
			if code == codes.ResourceExhausted && delay >= 0 {
				want = "uu"
			}
			if want == "uu" {
				after = min(max(delay, 0), 24*time.Hour)
			}
			r.set(func(ask) (answer, error) { return nil, answered.Err() })
			errs := sink.Write(t.Context(), all)
			if v := sinktest.Verdicts(2, errs); v != want || plugins.RetryAfter(errs[1]) != after || strings.Contains(errs[0].Error(), "s3cret") ||
				!strings.Contains(errs[0].Error(), "answered "+code.String()) || !strings.HasPrefix(plugins.Category(errs[0]), "answered "+code.String()) {
				t.Errorf("%v, to try again after %v: got %s after %v: %v", code, delay, v, plugins.RetryAfter(errs[1]), errs)
			}
		}
	}
	r.set(nil)
	if errs := sink.Write(t.Context(), all); errs != nil {
		t.Error(errs)
	}
	sinktest.Compare(t, r.ids(), sinktest.IDs(all))
}

// TestStatusOfHTTP: each code is retryable or permanent by the specification of OTLP. Retry-After
// is used for retryable codes.
func TestStatusOfHTTP(t *testing.T) {
	// Guarantee: otlp-delivery, sink-unavailable
	for code, want := range map[int]string{
		429: "uu", 502: "uu", 503: "uu", 504: "uu", // of the specification
		408: "uu", 425: "uu", // the request was not processed
		401: "uu", 403: "uu", 407: "uu", // the credentials concern all events
		400: "rr", 404: "rr", 405: "rr", 413: "rr", 415: "rr", 422: "rr", 500: "rr", 501: "rr", 505: "rr", 507: "rr", 301: "rr", 307: "rr",
		200: "dd", 202: "dd", 204: "dd",
	} {
		for _, header := range []string{"", "7", "999999999", "-1", "soon", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", header)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
				if code != http.StatusNoContent {
					_, _ = w.Write([]byte("s3cret"))
				}
			}))
			errs := open(t, "{endpoint: '"+s.URL+"', protocol: http}").Write(t.Context(), sinktest.Events(t, "web", 2, 10))
			s.Close()
			if v := sinktest.Verdicts(2, errs); v != want {
				t.Errorf("%d: got %s: %v", code, v, errs)
				continue
			}
			if want == "dd" {
				continue
			}
			least, most := time.Duration(0), time.Duration(0)
			if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 && want == "uu" {
				least = min(time.Duration(seconds)*time.Second, 24*time.Hour)
				most = least
			} else if strings.HasSuffix(header, "GMT") && want == "uu" {
				least, most = 30*time.Minute, time.Hour
			}
			if after := plugins.RetryAfter(errs[0]); after < least || after > most || strings.Contains(errs[0].Error(), "s3cret") {
				t.Errorf("%d with Retry-After %s: after %v: %v", code, header, after, errs)
			}
		}
	}
}

// TestCodes: the configuration changes the meaning of a status.
func TestCodes(t *testing.T) {
	// Guarantee: otlp-delivery, sink-unavailable, sink-rejects
	for code, want := range map[int]string{403: "rr", 503: "rr", 401: "uu", 404: "uu", 400: "uu", 410: "rr"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		errs := open(t, "{endpoint: '"+s.URL+"', protocol: http, unavailable: [404, 400], rejected: [403, 503]}").Write(t.Context(), sinktest.Events(t, "web", 2, 10))
		s.Close()
		if v := sinktest.Verdicts(2, errs); v != want {
			t.Errorf("%d: got %s, want %s: %v", code, v, want, errs)
		}
		if category := plugins.Category(errs[0]); !strings.HasPrefix(category, fmt.Sprintf("answered %d", code)) {
			t.Errorf("the category is %q", category)
		}
		if denied := code == http.StatusUnauthorized || code == http.StatusForbidden; strings.Contains(errs[0].Error(), "authentication failed") != denied {
			t.Errorf("%d: %v", code, errs[0])
		}
	}
}

// TestConventions: the kinds of the semantic conventions have exactly their attributes.
func TestConventions(t *testing.T) {
	r := &receiver{}
	at, _ := serveGRPC(t, r, "127.0.0.1:0")
	sink := open(t, "endpoint: http://"+at)
	for of, want := range map[string]string{
		"/v1 Pod": "pod", "/v1 Node": "node", "/v1 Service": "service", "/v1 ReplicationController": "replicationcontroller", "/v1 ResourceQuota": "resourcequota",
		"/v1 PersistentVolume": "persistentvolume", "/v1 PersistentVolumeClaim": "persistentvolumeclaim", "apps/v1 Deployment": "deployment",
		"apps/v1 ReplicaSet": "replicaset", "apps/v1 StatefulSet": "statefulset", "apps/v1 DaemonSet": "daemonset", "batch/v1 Job": "job",
		"batch/v1 CronJob": "cronjob", "autoscaling/v2 HorizontalPodAutoscaler": "hpa", "/v1 Namespace": "namespace", "storage.k8s.io/v1 StorageClass": "storageclass",
		"/v1 ConfigMap": "", "example.com/v1 Pod": "", "example.com/v1 Deployment": "",
	} {
		t.Run(of, func(t *testing.T) {
			group, rest, _ := strings.Cut(of, "/")
			version, kind, _ := strings.Cut(rest, " ")
			resource := &event.Resource{Cluster: "far", Kind: kind}
			resource.Group, resource.Version, resource.Resource = group, version, strings.ToLower(kind)+"s"
			o, err := event.ParseObject(resource, `{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}`)
			must.Succeed(t, err)
			d := &event.Delta{Source: "s", Op: event.Deleted, Old: o, Seen: time.Unix(1, 0)}
			if errs := sink.Write(t.Context(), []event.Event{event.New(d, "r", 0, event.Payload(d))}); errs != nil {
				t.Fatal(errs)
			}
			logs := r.requests[len(r.requests)-1].GetResourceLogs()
			got := map[string]string{}
			for _, a := range append(logs[0].GetResource().GetAttributes(), logs[0].GetScopeLogs()[0].GetLogRecords()[0].GetAttributes()...) {
				if strings.HasPrefix(a.GetKey(), "k8s.") {
					got[a.GetKey()] = a.GetValue().GetStringValue()
				}
			}
			expected := map[string]string{
				"k8s.cluster.name": "far", "k8s.object.kind": kind, "k8s.object.name": "a", "k8s.object.uid": "u", "k8s.object.resource_version": "7",
				"k8s.object.api_version": strings.TrimPrefix(group+"/"+version, "/"),
			}
			if want != "" {
				expected["k8s."+want+".name"], expected["k8s."+want+".uid"] = "a", "u"
			}
			if want == "namespace" || want == "storageclass" {
				delete(expected, "k8s."+want+".uid")
			}
			if !maps.Equal(got, expected) {
				t.Errorf("got %v, want %v", got, expected)
			}
		})
	}
}

// TestClusters: the events of several clusters in one request are separate, one record each, in
// order.
func TestClusters(t *testing.T) {
	// Guarantee: otlp-delivery
	r := &receiver{}
	at, _ := serveGRPC(t, r, "127.0.0.1:0")
	var all []event.Event
	for i := range 6 {
		resource := &event.Resource{Cluster: fmt.Sprint("c", i%2), Kind: "Node"}
		resource.Version, resource.Resource = "v1", "nodes"
		o, err := event.ParseObject(resource, fmt.Sprintf(`{"metadata":{"name":"n%d","uid":"u%d","resourceVersion":"7"}}`, i, i))
		must.Succeed(t, err)
		d := &event.Delta{Source: "s", Op: event.Added, New: o, Seen: time.Unix(1, 0)}
		all = append(all, event.New(d, "r", 0, event.Payload(d)))
	}
	if errs := open(t, "endpoint: http://"+at).Write(t.Context(), all); errs != nil || len(r.requests) != 1 || len(r.requests[0].GetResourceLogs()) != 2 {
		t.Fatalf("%d requests: %v", len(r.requests), errs)
	}
	want := sinktest.IDs([]event.Event{all[0], all[2], all[4], all[1], all[3], all[5]})
	if got := r.ids(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestOutage: an unavailable receiver stops only the routes of its sink. When it is back, it gets
// their backlog once.
func TestOutage(t *testing.T) {
	// Guarantee: broker-down
	for _, protocol := range []string{"grpc", "http"} {
		t.Run(protocol, func(t *testing.T) {
			r := &receiver{refuse: func(request ask) (answer, error) {
				for _, body := range bodies(request) {
					if len(body) > 100_000 {
						return nil, status.Error(codes.InvalidArgument, "too large")
					}
				}
				return nil, nil
			}}
			var behind string
			if protocol == "grpc" {
				behind, _ = serveGRPC(t, r, "127.0.0.1:0")
			} else {
				s := httptest.NewServer(r)
				t.Cleanup(s.Close)
				behind = s.Listener.Addr().String()
			}
			w := sinktest.NewWire(t, behind)
			config := fmt.Sprintf("{endpoint: 'http://%s', protocol: %s, timeout: 20s}", w.Addr(), protocol)
			o := sinktest.Outage{
				Sink: open(t, config), Why: `otlp "bus": http://` + w.Addr().String() + ": ", Large: 200_000,
				Before: func() { w.Cut("") },
				After:  func() { w.Cut(behind) },
			}
			want := o.Run(t, 90)
			var got []string
			for _, request := range r.requests {
				got = append(got, routed(request)...)
			}
			// OTLP has no deduplication: only events whose acknowledgement was lost with the
			// connection arrive twice.
			twice := sinktest.Twice(got)
			if len(twice) > 16*2 {
				t.Errorf("%d are there twice", len(twice))
			}
			sinktest.Compare(t, got, append(want, twice...))
		})
	}
}

// TestLostAnswer: a request whose response is lost is sent again. Its records arrive twice, with
// the same id.
func TestLostAnswer(t *testing.T) {
	// Guarantee: otlp-delivery
	both(t, func(t *testing.T, r *receiver, config string) {
		w := sinktest.NewWire(t, strings.TrimSuffix(strings.TrimPrefix(strings.Split(config, "'")[1], "http://"), "/"))
		sink := open(t, strings.Replace(config, strings.Split(config, "'")[1], "http://"+w.Addr().String(), 1)+", timeout: 20s}")
		all := sinktest.Events(t, "web", 20, 10)
		if errs := sink.Write(t.Context(), all[:1]); errs != nil {
			t.Fatal(errs)
		}
		w.Mute()
		go func() {
			sinktest.Until(t, "the arrival of all events", func() bool { return len(r.ids()) == 20 })
			w.Cut(w.Target())
		}()
		errs := sink.Write(t.Context(), all[1:])
		if v := sinktest.Verdicts(19, errs); v != strings.Repeat("u", 19) {
			t.Fatalf("got %s: %v", v, errs)
		}
		sinktest.Insist(t, sink, all[1:])
		sinktest.Compare(t, r.ids(), append(sinktest.IDs(all), sinktest.IDs(all[1:])...))
	})
}

// TestBrokenAnswers: a response that is incomplete or not OTLP does not acknowledge the records, so
// they are sent again.
func TestBrokenAnswers(t *testing.T) {
	// Guarantee: otlp-delivery
	for name, answer := range map[string]string{
		"half":    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\n\x0a",
		"garbage": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/x-protobuf\r\nContent-Length: 6\r\n\r\ns3cret",
		"none":    "",
	} {
		t.Run(name, func(t *testing.T) {
			r := &receiver{}
			var mended atomic.Bool
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if mended.Load() {
					r.ServeHTTP(w, req)
					return
				}
				r.ServeHTTP(httptest.NewRecorder(), req)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}))
			t.Cleanup(s.Close)
			sink, all := open(t, "{endpoint: '"+s.URL+"', protocol: http}"), sinktest.Events(t, "web", 2, 10)
			errs := sink.Write(t.Context(), all)
			if v := sinktest.Verdicts(2, errs); v != "uu" || strings.Contains(errs[0].Error(), "s3cret") {
				t.Fatalf("got %s: %v", v, errs)
			}
			mended.Store(true)
			if errs := sink.Write(t.Context(), all); errs != nil {
				t.Fatal(errs)
			}
			sinktest.Compare(t, r.ids(), append(sinktest.IDs(all), sinktest.IDs(all)...))
		})
	}
}

// TestWritesConnect: the host decides how often to try an unavailable receiver. Each write
// connects, instead of returning an earlier error.
func TestWritesConnect(t *testing.T) {
	r := &receiver{}
	at, _ := serveGRPC(t, r, "127.0.0.1:0")
	w := sinktest.NewWire(t, at)
	sink, all := open(t, fmt.Sprintf("{endpoint: 'http://%s', timeout: 20s}", w.Addr())), sinktest.Events(t, "web", 2, 10)
	if errs := sink.Write(t.Context(), all); errs != nil {
		t.Fatal(errs)
	}
	w.Cut("")
	sinktest.Complains(t, sink, all, "http://")
	before := w.Dials()
	for range 4 {
		if v := sinktest.Verdicts(2, sink.Write(t.Context(), all)); v != "uu" {
			t.Errorf("got %s", v)
		}
	}
	if n := w.Dials() - before; n < 2 { // gRPC itself would still delay the connection
		t.Errorf("%d connections in 4 writes", n)
	}
}
