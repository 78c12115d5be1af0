package webhook_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// raw serves responses that net/http would not send.
func raw(t *testing.T, answer func(r *http.Request) string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, answer(r))
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestHostileAnswers: for any data that a receiver sends instead of a response, the error is short
// and contains none of it.
func TestHostileAnswers(t *testing.T) {
	// Guarantee: answers-leak
	for name, c := range map[string]struct {
		answer func(r *http.Request) string
		want   string
	}{
		"no HTTP":            {func(*http.Request) string { return strings.Repeat("\x01", 9<<20) + "\r\n\r\n" }, ""},
		"an echo":            {func(r *http.Request) string { return r.Header.Get("Authorization") + "\r\n\r\n" }, "the response is not HTTP"},
		"an echo as header":  {func(r *http.Request) string { return "HTTP/1.1 200 OK\r\n" + r.RequestURI + "\r\n\r\n" }, "the response is not HTTP"},
		"endless headers":    {func(*http.Request) string { return "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<20) }, "the headers of the response are too large"},
		"a status that says": {func(r *http.Request) string { return "HTTP/1.1 503 " + r.Header.Get("Authorization") + "\r\n\r\n" }, "answered 503 Service Unavailable"},
		"a length that says": {func(r *http.Request) string { return "HTTP/1.1 200 OK\r\nContent-Length: " + r.RequestURI + "\r\n\r\n" }, "the connection failed"},
		"nothing":            {func(*http.Request) string { return "" }, "the connection was closed before the response"},
	} {
		t.Run(name, func(t *testing.T) {
			address := raw(t, c.answer)
			sink := open(t, `{url: "http://`+address+`/secret-path?token=t0ken", headers: {Authorization: "Bearer s3cr3t"}}`)
			errs := sink.Write(t.Context(), []event.Event{sample()})
			if len(errs) != 1 || plugins.ClassOf(errs[0]) == plugins.Rejected {
				t.Fatalf("got %v", errs)
			}
			text := errs[0].Error()
			if len(text) > 300 || !strings.HasSuffix(text, c.want) {
				t.Errorf("%d bytes: %.300q, want %q", len(text), text, c.want)
			}
			for _, secret := range []string{"s3cr3t", "t0ken", "secret-path", "\x01"} {
				if strings.Contains(text, secret) {
					t.Errorf("it has %q: %.300q", secret, text)
				}
			}
		})
	}
}

// TestSaid: the reason of a rejection is kept only for the dead letter. It is the beginning of the
// response, without the secrets of the request in any encoding. There is none for a Secret.
func TestSaid(t *testing.T) {
	// Guarantee: sink-rejects, answers-leak
	const token, key = "s3cr3t/token+1", "k3y \"quoted\""
	basic := base64.StdEncoding.EncodeToString([]byte("user:passw0rd"))
	for name, c := range map[string]struct{ answer, want string }{
		"a reason":            {`{"error": "field x is missing"}`, `{"error": "field x is missing"}`},
		"nothing":             {"", ""},
		"harmful":             {"\x1b[31mred\r\nforged\u202e", "\ufffd[31mred  forged\ufffd"},
		"long":                {strings.Repeat("x", 1<<20), strings.Repeat("x", 509) + "…"},
		"the header":          {"got Bearer " + token + "!", "got [redacted]!"},
		"the token":           {"got " + token, "got [redacted]"},
		"escaped":             {"got " + url.QueryEscape(token), "got [redacted]"},
		"basic":               {"not " + basic + ", user:passw0rd, passw0rd", "not [redacted], [redacted], [redacted]"},
		"of the URL":          {"/hook-s3cret?q=qu3ry: hook-s3cret qu3ry", "[redacted]: [redacted] [redacted]"},
		"of the body":         {`{"you": "` + `k3y \"quoted\"` + `"}`, `{"you": "[redacted]"}`},
		"at the end of 4 KiB": {strings.Repeat(token+"\n", 4<<10/(len(token)+1)) + token, strings.Repeat("[redacted] ", 47)[:509] + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusGone)
				_, _ = io.WriteString(w, c.answer)
			})
			config := fmt.Sprintf("{url: %q, headers: {Authorization: %q, X-Basic: %q}, secrets: {key: %q}, body: '{\"key\": secrets.key}'}",
				s.URL+"/hook-s3cret?q=qu3ry", "Bearer "+token, "Basic "+basic, key)
			errs := open(t, config).Write(t.Context(), []event.Event{sample()})
			if len(errs) != 1 || plugins.ClassOf(errs[0]) != plugins.Rejected || !strings.HasSuffix(errs[0].Error(), "answered 410 Gone") {
				t.Fatalf("got %v", errs)
			}
			if got := plugins.ResponseOf(errs[0]); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestSaidOfSecrets: a response may repeat the request, so none of it is kept if an event concerns
// a Secret.
func TestSaidOfSecrets(t *testing.T) {
	// Guarantee: sink-rejects, answers-leak
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write(body)
	})
	resource := &event.Resource{Cluster: "test", Kind: "Secret"}
	resource.Version, resource.Resource = "v1", "secrets"
	o, err := event.ParseObject(resource, `{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"data":{"k":"c2VjcmV0"}}`)
	must.Succeed(t, err)
	d := &event.Delta{Source: "secrets", Op: event.Added, New: o}
	events := append(plugintest.Events(t), event.New(d, "r", 0, event.Payload(d)))
	for _, mode := range []string{"structured", "binary", "batched"} {
		errs := open(t, fmt.Sprintf("{url: %q, mode: %s}", s.URL, mode)).Write(t.Context(), events)
		if len(errs) != len(events) {
			t.Fatalf("%s: got %v", mode, errs)
		}
		if said := plugins.ResponseOf(errs[len(errs)-1]); said != "" {
			t.Errorf("%s: said %q", mode, said)
		}
		if said := plugins.ResponseOf(errs[0]); strings.Contains(said, "c2VjcmV0") {
			t.Errorf("%s: of another event: %q", mode, said)
		}
	}
}
