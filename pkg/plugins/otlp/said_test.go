package otlp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// said returns the explanation that a sink keeps of a response that rejects the last event. The
// text of the error contains none of it.
func said(t *testing.T, config string, events []event.Event) string {
	t.Helper()
	errs := open(t, "{headers: {authorization: Bearer s3cr3t}, "+config+"}").Write(t.Context(), events)
	if len(errs) != len(events) {
		t.Fatalf("got %v", errs)
	}
	for _, err := range errs {
		if plugins.ClassOf(err) != plugins.Rejected || strings.Contains(err.Error(), "quota") {
			t.Errorf("got %v", err)
		}
	}
	return plugins.ResponseOf(errs[len(errs)-1])
}

// secretEvents returns two events, the last of which concerns a Secret.
func secretEvents(t *testing.T) []event.Event {
	t.Helper()
	resource := &event.Resource{Cluster: "test", Kind: "Secret"}
	resource.Version, resource.Resource = "v1", "secrets"
	o, err := event.ParseObject(resource, `{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: "secrets", Op: event.Added, New: o}
	return append(sinktest.Events(t, "web", 1, 10), event.New(d, "r", 0, event.Payload(d)))
}

// TestSaid: a dead letter gets the reason of a rejection, without the values of the headers. It
// gets nothing of a response about a Secret.
func TestSaid(t *testing.T) {
	message, err := proto.Marshal(&spb.Status{Code: 7, Message: "no quota for Bearer s3cr3t"})
	must.Succeed(t, err)
	for name, c := range map[string]struct {
		kind, body, want string
		code             int
	}{
		"text":      {"text/plain", "no quota\x1b[31m: Bearer s3cr3t, s3cr3t", "no quota\ufffd[31m: [redacted], [redacted]", http.StatusGone},
		"status":    {"application/x-protobuf", string(message), "no quota for [redacted]", http.StatusGone},
		"no status": {"application/x-protobuf", "no quota", "no quota", http.StatusBadRequest},
		"long":      {"text/plain", strings.Repeat("quota ", 1000), strings.Repeat("quota ", 90)[:509] + "…", http.StatusGone},
		"nothing":   {"text/plain", "", "", http.StatusGone},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer s.Close()
			config := fmt.Sprintf("endpoint: %q, protocol: http", s.URL)
			if got := said(t, config, sinktest.Events(t, "web", 2, 10)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if got := said(t, config, secretEvents(t)); got != "" {
				t.Errorf("with a Secret: %q", got)
			}
		})
	}
	t.Run("grpc", func(t *testing.T) {
		r := &receiver{refuse: func(ask) (answer, error) {
			return nil, status.Error(codes.FailedPrecondition, "no quota for s3cr3t")
		}}
		at, _ := serveGRPC(t, r, "127.0.0.1:0")
		config := "endpoint: 'http://" + at + "'"
		if got := said(t, config, sinktest.Events(t, "web", 2, 10)); got != "no quota for [redacted]" {
			t.Errorf("said %q", got)
		}
		if got := said(t, config, secretEvents(t)); got != "" {
			t.Errorf("with a Secret: %q", got)
		}
	})
}

// TestEndlessRefusal: the status of a refusal counts, even if its body never ends.
func TestEndlessRefusal(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "no quota for s3cr")
		_ = http.NewResponseController(w).Flush()
		<-stop
	}))
	defer s.Close()
	defer close(stop)
	got := said(t, fmt.Sprintf("endpoint: %q, protocol: http, timeout: 10m", s.URL), sinktest.Events(t, "web", 1, 10))
	if got != "no quota for" { // without the beginning of the secret
		t.Errorf("said %q", got)
	}
}
