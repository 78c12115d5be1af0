package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func server(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	env := plugins.SinkEnv{Env: plugins.Env{Name: "hook", Log: slog.New(slog.DiscardHandler)}}
	return sinktest.OpenIn(t, webhook.Kind(), config, env)
}

func TestContract(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})
	for _, mode := range []string{"structured", "binary", "batched"} {
		t.Run(mode, func(t *testing.T) {
			plugintest.RunSink(t, plugintest.Sink{
				Kind: webhook.Kind(), Config: fmt.Sprintf("{url: %q, mode: %s}", s.URL, mode),
				Env: plugins.SinkEnv{Env: plugins.Env{Name: "hook", Log: slog.New(slog.DiscardHandler)}},
			})
		})
	}
}

func TestProblems(t *testing.T) {
	tests := []struct{ name, config, want string }{
		{"no url", "mode: binary", "url is missing"},
		{"no scheme", "url: example.com/x", "http://"},
		{"another scheme", "url: ftp://example.com", "http://"},
		{"no host", "url: http:///x", "host"},
		{"bad url", `url: "http://u:s3cret@exa mple.com"`, "not a URL"},
		{"mode", "{url: http://h, mode: heaps}", "mode"},
		{"body and mode", "{url: http://h, mode: binary, body: event.data}", "remove one of the two"},
		{"body that does not compile", "{url: http://h, body: object.metadata}", "undeclared reference to 'object'"},
		{"secrets without body", "{url: http://h, secrets: {a: x}}", "requires body"},
		{"contentType without body", "{url: http://h, contentType: text/html}", "requires body"},
		{"maxBatch without batches", "{url: http://h, maxBatch: 1Mi}", "requires mode: batched"},
		{"half a pair", "{url: https://h, tls: {cert: {file: /x}}}", "needs both cert and key"},
		{"certificate in the file", "{url: https://h, tls: {ca: s3cret}}", "write {file: path}"},
		{"timeout", "{url: http://h, timeout: 0s}", "timeout"},
		{"header name", `{url: http://h, headers: {"a b": x}}`, "is not a header name"},
		{"own header", "{url: http://h, headers: {content-type: text/plain}}", "set by the sink"},
		{"attribute", "{url: http://h, headers: {ce-id: x}}", "set by the sink"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			problems := webhook.Kind().Check(plugintest.Node(t, tt.config))
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) {
				t.Errorf("got %v, want one problem with %q", problems, tt.want)
			}
			if strings.Contains(problems.Error(), "s3cret") {
				t.Errorf("a problem quotes the URL: %v", problems)
			}
		})
	}
}

func sample() event.Event {
	return event.Event{
		ID: "0a1b", Type: "io.deltarouter.updated", Source: "/clusters/c/sources/pods", Subject: "default/web-0",
		Time: time.Date(2026, 3, 1, 15, 4, 5, 600_000, time.UTC), Data: []byte(`{"big":9007199254740993,"a":[1.0, "<é>"]}`),
		Route: "restarts", K8sUID: "u-1", K8sResourceVersion: "42", Redelivered: true,
		TraceParent: "00-0102030405060708090a0b0c0d0e0f10-1112131415161718-01",
	}
}

type received struct {
	header http.Header
	host   string
	method string
	body   string
}

func receive(t *testing.T, config func(url string) string) received {
	t.Helper()
	got := make(chan received, 1)
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Header, r.Host, r.Method, string(body)}
	})
	if errs := open(t, config(s.URL)).Write(t.Context(), []event.Event{sample()}); errs != nil {
		t.Fatal(errs)
	}
	return <-got
}

func TestStructured(t *testing.T) {
	got := receive(t, func(url string) string { return fmt.Sprintf("{url: %q}", url) })
	if ct := got.header.Get("Content-Type"); ct != "application/cloudevents+json" || got.method != http.MethodPost {
		t.Errorf("%s with content type %q", got.method, ct)
	}
	var body map[string]json.RawMessage
	must.Succeed(t, json.Unmarshal([]byte(got.body), &body))
	want := map[string]string{
		"specversion": `"1.0"`, "id": `"0a1b"`, "type": `"io.deltarouter.updated"`, "source": `"/clusters/c/sources/pods"`,
		"subject": `"default/web-0"`, "time": `"2026-03-01T15:04:05.0006Z"`, "datacontenttype": `"application/json"`,
		"route": `"restarts"`, "k8suid": `"u-1"`, "k8sresourceversion": `"42"`, "redelivered": `true`, "traceparent": `"` + sample().TraceParent + `"`,
		"data": `{"big":9007199254740993,"a":[1.0, "<é>"]}`, // unchanged
	}
	for name, value := range want {
		if string(body[name]) != value {
			t.Errorf("%s is %s, want %s", name, body[name], value)
		}
	}
	if len(body) != len(want) {
		t.Errorf("got %s", got.body)
	}
	if got.header.Get("Traceparent") != sample().TraceParent {
		t.Errorf("the headers are %v", got.header)
	}
}

func TestBinary(t *testing.T) {
	got := receive(t, func(url string) string { return fmt.Sprintf("{url: %q, mode: binary}", url) })
	want := map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "0a1b", "Ce-Type": "io.deltarouter.updated", "Ce-Source": "/clusters/c/sources/pods",
		"Ce-Subject": "default/web-0", "Ce-Time": "2026-03-01T15:04:05.0006Z", "Content-Type": "application/json",
		"Ce-Route": "restarts", "Ce-K8suid": "u-1", "Ce-K8sresourceversion": "42", "Ce-Redelivered": "true",
		"Ce-Traceparent": sample().TraceParent, "Traceparent": sample().TraceParent,
	}
	for name, value := range want {
		if got.header.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), value)
		}
	}
	if got.body != string(sample().Data) {
		t.Errorf("the body is %s", got.body)
	}
}

func TestHeaders(t *testing.T) {
	t.Setenv("HOOK_TOKEN", "Bearer t")
	got := receive(t, func(url string) string {
		return fmt.Sprintf("{url: %q, headers: {Authorization: {env: HOOK_TOKEN}, x-a: b, host: example.org}}", url)
	})
	if got.header.Get("Authorization") != "Bearer t" || got.header.Get("X-A") != "b" || got.host != "example.org" {
		t.Errorf("got host %q, %v", got.host, got.header)
	}
}

func TestStatus(t *testing.T) {
	// Guarantee: sink-unavailable, sink-rejects, webhook-ignored
	tests := []struct {
		status     int
		retryAfter string
		want       string // delivered, rejected, unavailable
		after      time.Duration
	}{
		{200, "", "delivered", 0},
		{204, "", "delivered", 0},
		{301, "", "rejected", 0},
		{307, "", "rejected", 0},
		{400, "", "rejected", 0},
		{401, "", "unavailable", 0},
		{403, "9", "unavailable", 9 * time.Second},
		{407, "", "unavailable", 0},
		{404, "", "rejected", 0},
		{410, "5", "rejected", 0},
		{408, "", "unavailable", 0},
		{425, "", "unavailable", 0},
		{429, "7", "unavailable", 7 * time.Second},
		{500, "", "unavailable", 0},
		{503, "-1", "unavailable", 0},
		{503, "4294967295", "unavailable", 24 * time.Hour},
		{503, "soon", "unavailable", 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.status, tt.retryAfter), func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				if tt.status != http.StatusNoContent {
					fmt.Fprint(w, "the body of the answer")
				}
			})
			url := strings.Replace(s.URL, "http://", "http://user:s3cret@", 1) + "/p4th?key=t0ken"
			errs := open(t, fmt.Sprintf("url: %q", url)).Write(t.Context(), []event.Event{sample()})
			if tt.want == "delivered" {
				if errs != nil {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 || errs[0] == nil {
				t.Fatalf("got %v", errs)
			}
			if got := plugins.ClassOf(errs[0]) == plugins.Rejected; got != (tt.want == "rejected") {
				t.Errorf("rejected: %v, want %s", got, tt.want)
			}
			if got := plugins.RetryAfter(errs[0]); got != tt.after {
				t.Errorf("retry after %v, want %v", got, tt.after)
			}
			checkSecrets(t, errs[0])
			if !strings.Contains(errs[0].Error(), fmt.Sprint(tt.status)) {
				t.Errorf("the error does not name the status: %v", errs[0])
			}
			if category := plugins.Category(errs[0]); !strings.HasPrefix(category, fmt.Sprintf("answered %d", tt.status)) {
				t.Errorf("the category is %q", category)
			}
			denied := tt.status == 401 || tt.status == 403 || tt.status == 407
			if strings.Contains(errs[0].Error(), "authentication failed, check the credentials of the sink") != denied {
				t.Errorf("an authentication failure: %v, and the error is %v", denied, errs[0])
			}
		})
	}
}

// TestCodes: the configuration changes the meaning of a status, in all modes.
func TestCodes(t *testing.T) {
	// Guarantee: sink-unavailable, sink-rejects
	for _, mode := range []string{"structured", "binary", "batched"} {
		for status, want := range map[int]string{403: "r", 503: "r", 401: "u", 404: "u", 400: "u", 410: "r"} {
			s := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			sink := open(t, fmt.Sprintf("{url: %q, mode: %s, unavailable: [404, 400], rejected: [403, 503]}", s.URL, mode))
			if got := sinktest.Verdicts(1, sink.Write(t.Context(), []event.Event{sample()})); got != want {
				t.Errorf("%s: %d: got %s, want %s", mode, status, got, want)
			}
		}
	}
}

func checkSecrets(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{"s3cret", "p4th", "t0ken", "body of the answer"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows %q: %v", secret, err)
		}
	}
	if !strings.Contains(err.Error(), `webhook "hook": http://127.0.0.1:`) {
		t.Errorf("the error does not say which sink and host: %v", err)
	}
}

func TestRetryAfterDate(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	errs := open(t, "url: "+s.URL).Write(t.Context(), []event.Event{sample()})
	if after := plugins.RetryAfter(errs[0]); after < 30*time.Second || after > time.Minute {
		t.Errorf("retry after %v, want about a minute", after)
	}
}

// A redirect, to another host or the same, is not followed: it would send the event and the headers
// to a host that is not configured. The event is rejected, and the next event is sent to the
// original URL.
func TestRedirect(t *testing.T) {
	// Guarantee: sink-rejects, redirect-leaks
	var asked, led atomic.Int32
	elsewhere := server(t, func(http.ResponseWriter, *http.Request) { led.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{elsewhere.URL + "/s3cret", "/elsewhere"} {
			asked.Store(0)
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				http.Redirect(w, r, to, status)
			})
			errs := open(t, "{url: "+s.URL+", headers: {Authorization: token}}").Write(t.Context(), []event.Event{sample(), sample()})
			if len(errs) != 2 || plugins.ClassOf(errs[0]) != plugins.Rejected || plugins.ClassOf(errs[1]) != plugins.Rejected || !strings.Contains(errs[0].Error(), "redirects are not followed") {
				t.Errorf("%d: %v", status, errs)
			}
			checkSecrets(t, errs[0])
			if asked.Load() != 2 || led.Load() != 0 {
				t.Errorf("%d to %s: %d requests, %d to where it leads", status, to, asked.Load(), led.Load())
			}
		}
	}
}

func TestNoConnection(t *testing.T) {
	// Guarantee: sink-unavailable
	s := server(t, nil)
	url := strings.Replace(s.URL, "http://", "http://user:s3cret@", 1) + "/p4th?key=t0ken"
	s.Close()
	errs := open(t, fmt.Sprintf("url: %q", url)).Write(t.Context(), []event.Event{sample(), sample()})
	for _, err := range errs {
		if err == nil || plugins.ClassOf(err) == plugins.Rejected {
			t.Fatalf("got %v", err)
		}
		checkSecrets(t, err)
	}
}

func TestTimeout(t *testing.T) {
	// Guarantee: sink-unavailable
	release := make(chan struct{})
	var asked atomic.Int32
	s := server(t, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-release
	})
	defer close(release)
	url := strings.Replace(s.URL, "http://", "http://user:s3cret@", 1) + "/p4th?key=t0ken"
	sink := open(t, fmt.Sprintf("{url: %q, timeout: 20ms}", url))
	errs := sink.Write(t.Context(), []event.Event{sample(), sample(), sample()})
	if len(errs) != 3 || errs[2] == nil || plugins.ClassOf(errs[0]) == plugins.Rejected || !strings.Contains(errs[0].Error(), "no answer within 20ms") {
		t.Errorf("got %v", errs)
	}
	checkSecrets(t, errs[0])
	if n := asked.Load(); n > 1 { // on a loaded machine the timeout can end before the connection
		t.Errorf("%d requests to a receiver that does not answer, want at most one per batch", n)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	errs = open(t, fmt.Sprintf("{url: %q, timeout: 1m}", url)).Write(ctx, []event.Event{sample()})
	if len(errs) != 1 || !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("got %v", errs)
	}
	checkSecrets(t, errs[0])
}

// A rejected event does not delay later events. An unavailable receiver does, which keeps their
// order.
func TestOrder(t *testing.T) {
	var ids []string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Ce-Id")
		ids = append(ids, id)
		switch id {
		case "1":
			w.WriteHeader(http.StatusBadRequest)
		case "3":
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	events := make([]event.Event, 5)
	for i := range events {
		events[i] = sample()
		events[i].ID = fmt.Sprint(i)
	}
	errs := open(t, fmt.Sprintf("{url: %q, mode: binary}", s.URL)).Write(t.Context(), events)
	var got string
	for _, err := range errs {
		switch {
		case err == nil:
			got += "d"
		case plugins.ClassOf(err) == plugins.Rejected:
			got += "r"
		default:
			got += "u"
		}
	}
	if got != "drduu" || strings.Join(ids, "") != "0123" {
		t.Errorf("got %s after the requests %v", got, ids)
	}
}

// A connection is reused, also after a response with a body of less than 4 KiB. An endless body is
// not read to its end.
func TestKeepAlive(t *testing.T) {
	remotes := map[string]bool{}
	body := strings.Repeat("x", 4<<10-1)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		remotes[r.RemoteAddr] = true
		fmt.Fprint(w, body)
	})
	sink := open(t, "url: "+s.URL)
	for range 3 {
		sink.Write(t.Context(), []event.Event{sample(), sample()})
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for six requests", len(remotes))
	}

	var sent atomic.Int64
	ended := make(chan struct{})
	endless := server(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil {
			n, err := w.Write([]byte(body))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	if errs := open(t, "{url: "+endless.URL+", timeout: 30s}").Write(t.Context(), []event.Event{sample()}); errs != nil {
		t.Errorf("got %v", errs)
	}
	// the data that fits into the buffers of the system, not the data of the whole timeout
	if <-ended; sent.Load() > 64<<20 {
		t.Errorf("it has taken %d bytes", sent.Load())
	}
}

func TestNoCloudEvent(t *testing.T) {
	e := sample()
	e.Type = ""
	errs := open(t, "url: http://127.0.0.1:1").Write(t.Context(), []event.Event{e})
	if len(errs) != 1 || plugins.ClassOf(errs[0]) != plugins.Rejected {
		t.Errorf("got %v, want a rejection", errs)
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
