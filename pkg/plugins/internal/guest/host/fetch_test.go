package host

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

// FuzzRequest: any text is rejected, or is a request to the host that is looked up in the grants.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"url":"https://example.com/"}`, `{"method":"POST","url":"http://a:1/","headers":{"a":"b"},"body":"x"}`, `{"url":"http://[::1%25eth0]:80/","bodyBase64":"YQ=="}`,
		`{"url":"http://a@b:c@d/"}`, `{"url":"http://example.com\\@evil.com/"}`, `{"url":"HTTP://EXAMPLE.com:443"}`, `{"url":"http:example.com"}`, `{"url":"//x"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, status := parse(text)
		if (r == nil) != (status < 0) {
			t.Fatalf("a request %v with status %d", r, status)
		}
		if r == nil {
			return
		}
		request, err := r.build(t.Context(), &fetchTarget{})
		if err != nil {
			return
		}
		// the host to which net/http connects, and its Host header
		host, port := request.URL.Hostname(), request.URL.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[request.URL.Scheme]
		}
		if got := net.JoinHostPort(strings.ToLower(host), port); got != r.Address() || request.URL.User != nil || port == "" {
			t.Errorf("it goes to %q, and %q was looked up", got, r.Address())
		}
		if !strings.EqualFold(request.URL.Host, request.Host) {
			t.Errorf("it says Host: %s to %s", request.Host, request.URL.Host)
		}
		for name := range request.Header {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("the header %q would slip through", name)
			}
		}
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }
