package otlp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestHostileAnswers: no error contains the text of a response, and endless headers are not read.
func TestHostileAnswers(t *testing.T) {
	// Guarantee: answers-leak
	const secret = "s3cr3t"
	check := func(t *testing.T, config, want string) {
		t.Helper()
		errs := open(t, config+", headers: {Authorization: Bearer "+secret+"}, timeout: 20s}").Write(t.Context(), sinktest.Events(t, "web", 1, 10))
		if len(errs) != 1 {
			t.Fatalf("got %v", errs)
		}
		if text := errs[0].Error(); len(text) > 500 || strings.Contains(text, secret) || !strings.Contains(text, want) || plugins.Bound(errs[0]).Error() != text {
			t.Errorf("%d bytes: %.500q, want %q", len(text), text, want)
		}
	}
	for name, c := range map[string]struct {
		answer func(r *http.Request) string
		want   string
	}{
		"an echo":         {func(r *http.Request) string { return r.Header.Get("Authorization") + "\r\n\r\n" }, "the response is not HTTP"},
		"endless headers": {func(*http.Request) string { return "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<20) }, "the headers of the response are too large"},
		"an echo in one": {func(r *http.Request) string {
			return "HTTP/1.1 200 OK\r\n" + r.Header.Get("Authorization") + "\r\n\r\n"
		}, "the response is not HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = conn.Write([]byte(c.answer(r)))
			}))
			defer s.Close()
			check(t, "{endpoint: '"+s.URL+"', protocol: http", c.want)
		})
	}
	t.Run("grpc", func(t *testing.T) {
		r := &receiver{refuse: func(ask) (answer, error) {
			return nil, status.Error(codes.Unavailable, secret+strings.Repeat("\x01", 1<<20))
		}}
		at, _ := serveGRPC(t, r, "127.0.0.1:0")
		check(t, "{endpoint: 'http://"+at+"'", "")
	})
}
