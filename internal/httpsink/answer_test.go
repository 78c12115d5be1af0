package httpsink

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestSaid shows that the kept part of a response contains no secret of the request, in any form or
// part.
func TestSaid(t *testing.T) {
	u, err := url.Parse("https://user:pass-word@host/hooks/T0123456789?token=abcdef")
	must.Succeed(t, err)
	secrets := Secrets(u, []string{"Bearer to\"ken", "Basic dXNlcjpoZWFkZXI=" /* user:header */}, "in the body", "abc")
	for _, tt := range []struct {
		body  string
		whole bool
		want  string
	}{
		{"bad field", true, "bad field"},
		{" \x1b[31mbad\r\nfield ", true, "\ufffd[31mbad  field"},
		{"to\"ken", true, "[redacted]"},
		{`{"got":"to\"ken"}`, true, `{"got":"[redacted]"}`},
		{"Bearer to%22ken!", true, "Bearer [redacted]!"},
		{"user:header, header", true, "[redacted], [redacted]"},
		{"/hooks/T0123456789?token=abcdef", true, "[redacted]"},
		{"T0123456789 abcdef pass-word in+the+body", true, "[redacted] [redacted] [redacted] [redacted]"},
		{"abc is in any text", true, "abc is in any text"}, // too short
		{"you sent pass-wo", true, "you sent pass-wo"},
		{"you sent pass-wo", false, "you sent"},
		{strings.Repeat("x", maxSaid), true, strings.Repeat("x", maxSaid)},
		{strings.Repeat("x", maxSaid+1), true, strings.Repeat("x", maxSaid-3) + "…"},
		{strings.Repeat("\n", MaxAnswer-6) + "pass-word", true, ""}, // the cut is within the secret
	} {
		if got := Excerpt([]byte(tt.body), tt.whole, secrets); got != tt.want {
			t.Errorf("%.40q, whole %v: %q, want %q", tt.body, tt.whole, got, tt.want)
		}
	}
}

// TestRetryAfter parses seconds, and dates in each of HTTP's forms. An absurd value becomes 0 or a
// day.
func TestRetryAfter(t *testing.T) {
	// Guarantee: retry-after-ignored
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "86400": 24 * time.Hour, "86401": 24 * time.Hour, "4294967295": 24 * time.Hour,
		"4294967296": 0, "99999999999999999999": 0, "-1": 0, "1.5": 0, "1e3": 0, "soon": 0, " 7": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Friday, 02-Jan-26 03:05:05 GMT": time.Minute, "Fri Jan  2 03:05:05 2026": time.Minute,
		"Fri, 02 Jan 2026 03:04:04 GMT": 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

// TestRedirected: the hint has the host of the target, and neither its path nor its query.
func TestRedirected(t *testing.T) {
	const hint = "redirects are not followed; if this is a login page, authenticate at the proxy before the receiver, else configure the target"
	from, err := http.NewRequest(http.MethodPost, "https://hooks.example.com/in", nil)
	must.Succeed(t, err)
	for _, c := range []struct {
		status         int
		location, want string
	}{
		{302, "https://login.example.com:8443/?token=s3cret", ", to https://login.example.com:8443: " + hint},
		{307, "/elsewhere", ", to https://hooks.example.com: " + hint},
		{301, "", ": " + hint},
		{301, "https://a b/", ": " + hint},
		{301, "https://" + strings.Repeat("a", 1000), ": " + hint},
		{401, "https://login.example.com", ""},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Location": {c.location}}, Request: from}
		if got := Redirected(resp); got != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.location, got, c.want)
		}
	}
}
