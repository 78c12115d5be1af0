package wasm

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// FuzzRequest: whatever a guest writes, it is refused, or it is a request whose host is the one that is looked up in the list.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"url":"https://example.com/"}`, `{"method":"POST","url":"http://a:1/","headers":{"a":"b"},"body":"x"}`, `{"url":"http://[::1%25eth0]:80/","bodyBase64":"YQ=="}`,
		`{"url":"http://a@b:c@d/"}`, `{"url":"http://example.com\\@evil.com/"}`, `{"url":"HTTP://EXAMPLE.com:443"}`, `{"url":"http:example.com"}`, `{"url":"//x"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, status := parseHTTP(text)
		if (r == nil) != (status < 0) {
			t.Fatalf("a request %v with status %d", r, status)
		}
		if r == nil {
			return
		}
		request, err := r.build(t.Context(), &httpHost{})
		if err != nil {
			return
		}
		// Where net/http connects to, and what it says there.
		host, port := request.URL.Hostname(), request.URL.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[request.URL.Scheme]
		}
		if got := net.JoinHostPort(strings.ToLower(host), port); got != r.address() || request.URL.User != nil || port == "" {
			t.Errorf("it goes to %q, and %q was looked up", got, r.address())
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

// FuzzLookup: whatever a guest writes, it is refused, or asks for one thing that was granted.
func FuzzLookup(f *testing.F) {
	for _, seed := range []string{
		`{"index":"pods.byNode","key":"n1"}`, `{"list":"pods","count":true}`, `{"get":"pods","namespace":"a","name":"b"}`, `{"index":"secrets.x"}`, `{"list":"pods.byNode"}`,
	} {
		f.Add(seed)
	}
	full := tank{fuel: &global{}, stack: &global{}, mark: &global{}}
	full.fill(1 << 60)
	rights := &rights{lookup: onlyPods{f}, granted: map[indexName]bool{{"pods", "byNode"}: true, {"nodes", ""}: true}}
	f.Fuzz(func(_ *testing.T, text string) {
		r, err := parseLookup(text)
		if err != nil {
			return
		}
		_, _ = r.answer(&hostCall{scope: &scope{tank: full}}, rights)
	})
}

// global is one of a guest that is not there.
type global struct {
	api.MutableGlobal

	value uint64
}

func (g *global) Get() uint64  { return g.value }
func (g *global) Set(v uint64) { g.value = v }

// onlyPods fails for everything but pods.byNode and nodes.
type onlyPods struct{ t testing.TB }

func (o onlyPods) check(source, index string) {
	if source != "nodes" && (source != "pods" || index != "byNode") {
		o.t.Errorf("%s.%s was looked up", source, index)
	}
}

func (o onlyPods) Lookup(source, index, _ string) []*event.Object {
	o.check(source, index)
	return nil
}

func (o onlyPods) Count(source, index, _ string) int {
	o.check(source, index)
	return 0
}

func (o onlyPods) Get(source, _, _ string) *event.Object {
	o.check(source, "")
	return nil
}
