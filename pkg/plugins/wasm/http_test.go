package wasm_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// server is a local HTTP server that counts its requests.
type server struct {
	*httptest.Server

	requests atomic.Int32
}

func serve(t *testing.T, f http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// address returns the address of the server. A grant of a local address must name it.
func (s *server) address() string { return s.Listener.Addr().String() }

// allow returns a grant for the server.
func (s *server) allow(more string) string {
	return fmt.Sprintf(`allow: {http: [{host: %q, scheme: http%s}]}`, s.address(), more)
}

// asking returns a guest that sends a request and emits the response. The guest fails unless the
// function returns want. 0: any result.
func asking(request string, want int64) module {
	m := guest(constant(opI32, 0x400000), constant(opI32, int64(len(request))), constant(opI32, 0x20000+8), constant(opI32, 1<<21), opCall, 0, opSet, 2)
	body := m.function("rtr_handle").body
	if want != 0 {
		body = code(body, opGet, 2, constant(opI32, want), opEq, opIf, i64, constant(opI64, 0), 0x05 /* else */, constant(opI64, 3), opEnd)
	} else {
		// {"data": the response }
		body = code(
			body, constant(opI32, 0x20000+8), opGet, 2, opAdd, constant(opI32, '}'), 0x3a, 0, 0, /* i32.store8 */
			constant(opI32, 0), constant(opI32, 0x20000), opGet, 2, constant(opI32, 9), opAdd, opCall, 1, opDrop, constant(opI64, 0),
		)
	}
	m.function("rtr_handle").body = body
	m.imports = []function{named("http"), named("emit")}
	m.data = map[uint32][]byte{0x400000: []byte(request), 0x20000: []byte(`{"data":`)}
	m.memory = append([]byte{0}, uleb(0x41+len(request)>>16)...)
	m.function("rtr_alloc").body = constant(opI32, 0x300000)
	return m
}

// answer is the response in the encoding for guests.
type answer struct {
	Status           int
	Headers          map[string]string
	Body, BodyBase64 string
	Error            string
}

// unhurried are limits for guests that wait for servers of the test. The default of a second is too
// short on a busy machine.
const unhurried = ", limits: {timeout: 10m, initTimeout: 10m, output: 4Mi, fuel: 100M}"

// ask lets a guest send a request and returns the response.
func ask(t *testing.T, rights, request string) (a answer) {
	t.Helper()
	got := data(run(t, newHost().open(t, withRights(t, asking(request, 0), rights+unhurried)), first(t)))
	if len(got) != 1 {
		t.Fatalf("the request was refused")
	}
	must.Succeed(t, json.Unmarshal([]byte(got[0]), &a))
	return a
}

// refuse lets a guest send a request, which must return a status.
func refuse(t *testing.T, want int64, rights, request string) {
	t.Helper()
	results, err := newHost().open(t, withRights(t, asking(request, want), rights+unhurried)).Handle(t.Context(), first(t))
	if err != nil || results[0].Verdict != plugins.OK {
		t.Errorf("it did not return %d: %v %v", want, results, err)
	}
}

// post returns a request.
func post(t *testing.T, request map[string]any) string {
	t.Helper()
	text, err := json.Marshal(request)
	must.Succeed(t, err)
	return string(text)
}

func TestHTTP(t *testing.T) {
	// Guarantee: guest-http
	token := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(token, []byte("Bearer secret\n"), 0o600))
	var sent atomic.Value
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent.Store(r.Header.Get("Authorization"))
		w.Header().Add("X-A", "1")
		w.Header().Add("X-A", "2")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s|%s|%s|%s|%s", r.Method, r.Host, r.URL, r.Header.Get("Accept"), r.Header.Get("Authorization"), r.Header.Get("User-Agent"), body)
	})
	request := post(t, map[string]any{"method": "PUT", "url": s.URL + "/p?q=1#f", "headers": map[string]string{"accept": "text/plain"}, "body": "hällo"})
	a := ask(t, s.allow(fmt.Sprintf(", headers: {authorization: {file: %q}}", token)), request)
	if want := "PUT " + s.address() + " /p?q=1|text/plain|[redacted]|deltarouter|hällo"; sent.Load() != "Bearer secret" || a.Body != want || a.Status != 418 || a.BodyBase64 != "" || a.Error != "" {
		t.Errorf("got %+v, want %s", a, want)
	}
	if a.Headers["x-a"] != "1, 2" {
		t.Errorf("headers %q", a.Headers)
	}
	if s.requests.Load() != 1 {
		t.Errorf("%d requests", s.requests.Load())
	}
}

// TestHTTPEcho shows that a guest does not see a secret header in a response that repeats it.
func TestHTTPEcho(t *testing.T) {
	// Guarantee: guest-http
	token := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(token, []byte("Bearer c2VjcmV0IQ/==\n"), 0o600))
	t.Setenv("SHOP", "shop")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		quoted, _ := json.Marshal(r.Header.Get("X-Api-Key"))
		fmt.Fprint(w, r.Header.Get("Authorization"), " c2VjcmV0IQ%2F%3D%3D ", string(quoted), " ", r.Header.Get("Accept"), " ", r.Header.Get("X-Shop"), "\xff"+r.URL.RawQuery)
	})
	headers := fmt.Sprintf(`, headers: {authorization: {file: %q}, x-api-key: 'my "long" key', accept: application/json, x-shop: {env: SHOP}}`, token)
	a := ask(t, s.allow(headers), post(t, map[string]any{"url": s.URL + "/?c2VjcmV0IQ/=="}))
	body, err := base64.StdEncoding.DecodeString(a.BodyBase64)
	if want := "[redacted] [redacted] \"[redacted]\" application/json shop\xff[redacted]"; string(body) != want || err != nil || a.Headers["x-echo"] != "[redacted]" {
		t.Errorf("got %q, %v\nwant %q", body, a.Headers, want)
	}
}

func TestHTTPBodies(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	a := ask(t, s.allow(""), post(t, map[string]any{"method": "POST", "url": s.URL, "bodyBase64": "/wAB"}))
	if a.BodyBase64 != "/wAB" || a.Body != "" || a.Status != 200 {
		t.Errorf("got %+v", a)
	}
	if a := ask(t, s.allow(""), post(t, map[string]any{"url": s.URL})); a.BodyBase64 != "" || a.Body != "" || a.Status != 200 {
		t.Errorf("got %+v", a)
	}
}

// roundTrip is a fake transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A handler with env.HTTP sends nothing itself, and does not read its secrets.
func TestHTTPAnswered(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	h := newHost()
	h.env.HTTP = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusAccepted, Body: io.NopCloser(strings.NewReader(r.Method + r.URL.Path + r.Header.Get("Authorization")))}, nil
	})
	rights := s.allow(", headers: {authorization: {file: ./no-such-file}}")
	got := data(run(t, h.open(t, withRights(t, asking(post(t, map[string]any{"method": "PUT", "url": s.URL + "/p"}), 0), rights)), first(t)))
	if len(got) != 1 || got[0] != `{"status":202,"body":"PUT/p"}` || s.requests.Load() != 0 {
		t.Errorf("the guest got %s, and %d requests were sent", got, s.requests.Load())
	}
	// A request without a grant is rejected as usual.
	m := asking(`{"url":"http://127.0.0.1:1"}`, -2)
	other := newHost()
	other.env.HTTP = h.env.HTTP
	if results, err := other.open(t, withRights(t, m, rights)).Handle(t.Context(), first(t)); err != nil || results[0].Verdict != plugins.OK {
		t.Errorf("it was not refused: %v %v", results, err)
	}
}

// A rejected request is not sent.
func TestHTTPRefused(t *testing.T) {
	// Guarantee: guest-grants
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	port := s.address()[strings.LastIndexByte(s.address(), ':'):]
	tests := []struct {
		name    string
		status  int64
		request string
	}{
		{"another host", -2, `{"url":"http://localhost` + port + `"}`},
		{"another port", -2, `{"url":"http://127.0.0.1:1"}`},
		{"another scheme", -2, `{"url":"https://` + s.address() + `"}`},
		{"a longer name", -2, `{"url":"http://127.0.0.1.example.com` + port + `"}`},
		{"the host as a user", -4, `{"url":"http://` + s.address() + `@example.com"}`},
		{"a user", -4, `{"url":"http://a:b@` + s.address() + `"}`},
		{"no scheme", -4, `{"url":"` + s.address() + `"}`},
		{"another protocol", -4, `{"url":"file:///etc/passwd"}`},
		{"no URL", -4, `{"method":"GET"}`},
		{"CONNECT", -4, `{"method":"CONNECT","url":"` + s.URL + `"}`},
		{"a method in lower case", -4, `{"method":"get","url":"` + s.URL + `"}`},
		{"a header of the router", -2, `{"url":"` + s.URL + `","headers":{"AUTHORIZATION":"mine"}}`},
		{"the host", -2, `{"url":"` + s.URL + `","headers":{"host":"example.com"}}`},
		{"the length", -2, `{"url":"` + s.URL + `","headers":{"content-length":"5"}}`},
		{"a header with a new line", -4, `{"url":"` + s.URL + `","headers":{"a":"b\r\nc: d"}}`},
		{"a header that is none", -4, `{"url":"` + s.URL + `","headers":{"a b":"c"}}`},
		{"a header that is a list", -4, `{"url":"` + s.URL + `","headers":{"a":["c"]}}`},
		{"two bodies", -4, `{"url":"` + s.URL + `","body":"a","bodyBase64":"YQ=="}`},
		{"no base64", -4, `{"url":"` + s.URL + `","bodyBase64":"?"}`},
		{"an unknown member", -4, `{"url":"` + s.URL + `","timeout":5}`},
		{"a list", -4, `["` + s.URL + `"]`},
		{"no JSON", -4, `{"url":`},
		{"a large body", -3, `{"url":"` + s.URL + `","body":"` + strings.Repeat("x", 1<<20+1) + `"}`},
		{"a larger request", -3, `{"url":"` + s.URL + `","body":"` + strings.Repeat("x", 3<<20) + `"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := asking(tt.request, tt.status)
			rights := s.allow(", headers: {authorization: secret}")
			results, err := newHost().open(t, withRights(t, m, rights)).Handle(t.Context(), first(t))
			if err != nil || results[0].Verdict != plugins.OK {
				t.Errorf("it did not return %d: %v %v", tt.status, results, err)
			}
		})
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestHTTPRedirect(t *testing.T) {
	// Guarantee: guest-http
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/x", http.StatusFound)
	})
	// even if its target is granted
	rights := fmt.Sprintf(`allow: {http: [{host: %q, scheme: http}, {host: %q, scheme: http}]}`, s.address(), elsewhere.address())
	a := ask(t, rights, `{"url":"`+s.URL+`"}`)
	if a.Status != 302 || a.Headers["location"] != elsewhere.URL+"/x" || elsewhere.requests.Load() != 0 {
		t.Errorf("got %+v, %d requests to where it leads", a, elsewhere.requests.Load())
	}
}

func TestHTTPLarge(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		size := 1 << 20
		if r.URL.Path == "/more" {
			size++
		}
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	if a := ask(t, s.allow(""), `{"url":"`+s.URL+`"}`); len(a.Body) != 1<<20 {
		t.Errorf("%d bytes", len(a.Body))
	}
	refuse(t, -3, s.allow(""), `{"url":"`+s.URL+`/more"}`)
}

// A response that does not fit is kept: the request is sent once.
func TestHTTPOnce(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	request := `{"url":"` + s.URL + `"}`
	m := script(map[uint32]string{atKey: request})
	m.imports = []function{named("http")}
	ask := func(limit ...any) []byte {
		return code(constant(opI32, atKey), constant(opI32, int64(len(request))), constant(opI32, atBuffer), code(limit...), opCall, 0)
	}
	m.function("rtr_handle").body = code(
		ask(constant(opI32, 0)), opSet, 2, ask(opGet, 2, constant(opI32, 1), 0x6b /* sub */), opSet, 2,
		ask(opGet, 2), opGet, 2, opEq, opIf, i64, constant(opI64, 0), 0x05 /* else */, constant(opI64, 3), opEnd)
	run(t, newHost().open(t, withRights(t, m, s.allow("")+unhurried)), first(t))
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// A request takes at most the time of the call.
func TestHTTPDeadline(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		cancel()
		<-never
	})
	m := asking(`{"url":"`+s.URL+`"}`, -5)
	results, err := newHost().open(t, withRights(t, m, s.allow("")+unhurried)).Handle(ctx, first(t))
	if err != nil || results[0].Verdict != plugins.OK {
		t.Errorf("got %v %v", results, err)
	}
	// its context does not end
	run(t, newHost().open(t, withRights(t, m, s.allow(""))), first(t))
}

func TestHTTPUnreachable(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	if a := ask(t, s.allow(""), `{"url":"`+s.URL+`?secret"}`); a.Status != 0 || a.Error != "the connection failed" {
		t.Errorf("got %+v", a)
	}
	s.Close()
	h := newHost()
	got := data(run(t, h.open(t, withRights(t, asking(`{"url":"`+s.URL+`?secret"}`, 0), s.allow("")+unhurried)), first(t)))
	if len(got) != 1 || got[0] != `{"status":0,"error":"the connection was refused"}` {
		t.Errorf("got %s", got)
	}
	if log := h.log.String(); !strings.Contains(log, "a request of the handler had no answer") || strings.Contains(log, "secret") {
		t.Errorf("the log is %s", log)
	}
}

// A request with an unavailable header is not sent.
func TestHTTPNoSecret(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	rights := s.allow(fmt.Sprintf(", headers: {authorization: {file: %q}}", filepath.Join(t.TempDir(), "none")))
	if a := ask(t, rights, `{"url":"`+s.URL+`"}`); a.Status != 0 || a.Error != "the connection failed" || s.requests.Load() != 0 {
		t.Errorf("got %+v", a)
	}
}

// A name of a local address requires private: true. The API server requires its name or address.
func TestHTTPPrivate(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(s.address())
	must.Succeed(t, err)
	rights := func(more string) string {
		return fmt.Sprintf(`allow: {http: [{host: "localhost:%s", scheme: http%s}]}`, port, more)
	}
	request := `{"url":"http://localhost:` + port + `"}`
	refuse(t, -2, rights(""), request)
	if s.requests.Load() != 0 {
		t.Error("it got there")
	}
	if a := ask(t, rights(", private: true"), request); a.Status != 200 {
		t.Errorf("got %+v", a)
	}
	for api, want := range map[string]int64{s.address(): -2, "LOCALHOST:" + port: 0} {
		h := newHost()
		h.env.APIServer = api
		results, err := h.open(t, withRights(t, asking(request, want), rights(", private: true")+unhurried)).Handle(t.Context(), first(t))
		if err != nil || results[0].Verdict != plugins.OK {
			t.Errorf("API server at %s: %v %v", api, results, err)
		}
	}
}

// A server with an unknown certificate authority gets no request.
func TestHTTPUntrusted(t *testing.T) {
	s := &server{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.requests.Add(1) }))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.StartTLS()
	t.Cleanup(s.Close)
	rights := fmt.Sprintf(`allow: {http: [{host: %q}]}`, s.address())
	if a := ask(t, rights, `{"url":"`+s.URL+`"}`); a.Status != 0 || a.Error != "the connection failed" || s.requests.Load() != 0 {
		t.Errorf("got %+v", a)
	}
}
