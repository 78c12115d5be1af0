package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestSDK: the CloudEvents SDK, which the sink does not use, parses the requests of each mode.
func TestSDK(t *testing.T) {
	odd := sample()
	odd.Subject, odd.Type = "a \"b\" 100% é\n\x00", "t"
	for _, mode := range []string{"structured", "binary", "batched"} {
		for _, want := range []event.Event{sample(), odd} {
			t.Run(mode+" "+want.Type, func(t *testing.T) {
				s := server(t, func(_ http.ResponseWriter, r *http.Request) {
					events, err := cehttp.NewEventsFromHTTPRequest(r)
					if mode != "batched" {
						e, single := cehttp.NewEventFromHTTPRequest(r)
						if err = single; err == nil {
							events = append(events[:0], *e)
						}
					}
					if err != nil || len(events) != 1 {
						t.Errorf("%d events, %v", len(events), err)
						return
					}
					e := events[0]
					must.Report(t, e.Validate())
					if e.ID() != want.ID || e.Type() != want.Type || e.Source() != want.Source || !e.Time().Equal(want.Time) {
						t.Errorf("got %v", e)
					}
					subject := e.Subject()
					if mode == "binary" { // the SDK does not decode it
						subject, err = url.PathUnescape(subject)
					}
					if err != nil || subject != want.Subject {
						t.Errorf("subject %q, %v; want %q", subject, err, want.Subject)
					}
					if x := e.Extensions(); fmt.Sprintf("%v %v %v %v", x["route"], x["k8suid"], x["k8sresourceversion"], x["redelivered"]) != "restarts u-1 42 true" {
						t.Errorf("extensions %v", x)
					}
					var got, data any
					if json.Unmarshal(e.Data(), &got) != nil || json.Unmarshal(want.Data, &data) != nil || fmt.Sprint(got) != fmt.Sprint(data) {
						t.Errorf("data %s", e.Data())
					}
				})
				if errs := open(t, fmt.Sprintf("{url: %q, mode: %s}", s.URL, mode)).Write(t.Context(), []event.Event{want}); errs != nil {
					t.Error(errs)
				}
			})
		}
	}
}

func TestBody(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "key")
	must.Succeed(t, os.WriteFile(secret, []byte("k3y\n"), 0o600))
	for _, tt := range []struct{ config, contentType, body string }{
		{"body: event.data", "application/json", `{"big":9007199254740993,"a":[1.0, "<é>"]}`},
		{`body: '{"text": event.subject}'`, "application/json", `{"text":"default/web-0"}`},
		{`body: event.subject + "\n"`, "text/plain; charset=utf-8", "default/web-0\n"},
		{"body: event.data, contentType: application/vnd.x+json", "application/vnd.x+json", `{"big":9007199254740993,"a":[1.0, "<é>"]}`},
		{fmt.Sprintf(`body: '{"key": secrets.pd}', secrets: {pd: {file: %q}}`, secret), "application/json", `{"key":"k3y"}`},
	} {
		got := receive(t, func(url string) string { return fmt.Sprintf("{url: %q, %s}", url, tt.config) })
		if got.body != tt.body || got.header.Get("Content-Type") != tt.contentType || len(got.header["Ce-Id"]) != 0 {
			t.Errorf("%s: %q of type %s", tt.config, got.body, got.header.Get("Content-Type"))
		}
	}
}

// TestBodyFails: an event for which the expression fails is rejected, and the error does not
// contain it. A missing secret is a temporary error.
func TestBodyFails(t *testing.T) {
	e := sample()
	e.Data = []byte(`{"p":"s3cret"}`)
	for config, rejected := range map[string]bool{
		"body: event.data.none": true, "body: 'event.?data.?none'": true, "body: event.data.p + 1": true,
		"body: secrets.none": true, "body: secrets.a, secrets: {a: {env: NO_SUCH_VARIABLE}}": false,
	} {
		errs := open(t, "{url: http://127.0.0.1:1, "+config+"}").Write(t.Context(), []event.Event{e})
		if len(errs) != 1 || errs[0] == nil || (plugins.ClassOf(errs[0]) == plugins.Rejected) != rejected || strings.Contains(errs[0].Error(), "s3cret") ||
			!strings.Contains(errs[0].Error(), `webhook "hook": `) {
			t.Errorf("%s: %v, want rejected: %v", config, errs, rejected)
		}
	}
}

// batches records the ids of each request, and responds with the result of status.
type batches struct {
	mu     sync.Mutex
	asked  []string
	status func(ids []string) int
}

func (b *batches) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var events []struct{ ID string }
	body, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(body, &events); err != nil || r.Header.Get("Content-Type") != "application/cloudevents-batch+json" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, strings.Join(ids, ""))
	w.WriteHeader(b.status(ids))
}

// TestBatched checks the requests and the result of each event.
func TestBatched(t *testing.T) {
	// Guarantee: bad-event-in-batch
	has := func(bad string, status int) func([]string) int {
		return func(ids []string) int {
			if strings.ContainsAny(strings.Join(ids, ""), bad) {
				return status
			}
			return http.StatusOK
		}
	}
	for _, tt := range []struct {
		name, more, odd string
		status          func([]string) int
		asked, verdicts string
	}{
		{"all at once", "", "", has("", 0), "abcdefg", "ddddddd"},
		{"one is bad", "", "", has("c", 422), "abcdefg abc a bc b c defg", "ddrdddd"},
		{"two are bad", "", "", has("cg", 400), "abcdefg abc a bc b c defg de fg f g", "ddrdddr"},
		{"too large", "", "", func(ids []string) int { return map[bool]int{true: 413, false: 200}[len(ids) > 2] }, "abcdefg abc a bc defg de fg", "ddddddd"},
		{"not let in", "", "", has("a", 401), "abcdefg", "uuuuuuu"},
		{"not there", "", "", has("a", 404), "abcdefg", "rrrrrrr"},
		{"down", "", "", has("a", 503), "abcdefg", "uuuuuuu"},
		{"one is bad, and then it is down", "", "", func(ids []string) int {
			if ids[0] == "d" {
				return http.StatusServiceUnavailable
			}
			return has("c", 400)(ids)
		}, "abcdefg abc a bc b c defg", "ddruuuu"},
		{"by size", ", maxBatch: 1280", "", has("", 0), "abc def g", "ddddddd"},
		{"alone if need be", ", maxBatch: 1", "", has("c", 500), "a b c", "dduuuuu"},
		{"what is no event is left out", "", "bg", has("", 0), "acdef", "drddddr"},
		{"what is no event, and it is down", "", "g", has("a", 500), "abcdef", "uuuuuur"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &batches{status: tt.status}
			s := server(t, b.ServeHTTP)
			events := make([]event.Event, 7)
			for i := range events {
				events[i] = sample()
				if events[i].ID = string(rune('a' + i)); strings.Contains(tt.odd, events[i].ID) {
					events[i].Type = ""
				}
			}
			errs := open(t, fmt.Sprintf("{url: %q, mode: batched%s}", s.URL, tt.more)).Write(t.Context(), events)
			got := ""
			for i := range events {
				switch {
				case errs == nil || errs[i] == nil:
					got += "d"
				case plugins.ClassOf(errs[i]) == plugins.Rejected:
					got += "r"
				default:
					got += "u"
				}
			}
			if asked := strings.Join(b.asked, " "); got != tt.verdicts || asked != tt.asked {
				t.Errorf("%s after %s, want %s after %s", got, asked, tt.verdicts, tt.asked)
			}
		})
	}
}
