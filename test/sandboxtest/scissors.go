package sandboxtest

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/test/must"
)

// Scissors is a proxy of an API server that speaks HTTP without TLS, so that a connection can be
// cut after any byte of a watch: each byte that it writes is a byte that the client reads. Every
// other cut is a reset in the middle of a chunk.
type Scissors struct {
	*httptest.Server

	kubeconfig string

	mu        sync.Mutex
	target    *url.URL
	transport http.RoundTripper
	// by namespace: the bytes that its watch may still send; absent: all
	left     map[string]int
	cuts     int
	droughts map[string]drought // by namespace
	dried    int                // number of barren streams

	opening sync.RWMutex // held for writing: no watch opens
}

// Scissors starts a proxy that ends with the test.
func (s *Sandbox) Scissors(tb testing.TB) *Scissors {
	tb.Helper()
	return s.scissors(tb, (*httptest.Server).Start)
}

// BarrenProxy starts a proxy whose watches can be barren, and before it one that can be set to
// block or refuse. Both carry the TLS and HTTP/2 of their clients, like those of the API server, so
// a watch cannot be cut after a byte.
func (s *Sandbox) BarrenProxy(tb testing.TB) (*Scissors, *Proxy) {
	tb.Helper()
	p := s.scissors(tb, func(server *httptest.Server) {
		server.EnableHTTP2 = true
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // of handshakes that the other proxy ends
		server.StartTLS()
	})
	return p, before(tb, p.URL, p.kubeconfig)
}

func (s *Sandbox) scissors(tb testing.TB, start func(*httptest.Server)) *Scissors {
	tb.Helper()
	p := &Scissors{left: make(map[string]int), droughts: make(map[string]drought), kubeconfig: filepath.Join(tb.TempDir(), "kubeconfig")}
	p.Lead(tb, s)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	start(p.Server)
	tb.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	cluster := &api.Cluster{Server: p.URL}
	if own := p.Certificate(); own != nil {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Raw})
	}
	config := api.Config{
		Clusters:       map[string]*api.Cluster{"c": cluster},
		Contexts:       map[string]*api.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}
	must.Succeed(tb, clientcmd.WriteToFile(config, p.kubeconfig))
	return p
}

// Kubeconfig is the path of the kubeconfig for the proxy.
func (p *Scissors) Kubeconfig() string { return p.kubeconfig }

// Lead directs new requests to an API server.
func (p *Scissors) Lead(tb testing.TB, s *Sandbox) {
	tb.Helper()
	transport, err := rest.TransportFor(s.RESTConfig())
	must.Succeed(tb, err)
	target, err := url.Parse(s.RESTConfig().Host)
	must.Succeed(tb, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target, p.transport = target, transport
}

// After makes the watch of a namespace break once, after n more bytes.
func (p *Scissors) After(namespace string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[namespace] = n
}

// Cuts returns the number of cuts so far.
func (p *Scissors) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Hold lets no watch open while do runs.
func (p *Scissors) Hold(do func()) {
	p.opening.Lock()
	defer p.opening.Unlock()
	do()
}

func (p *Scissors) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	target, transport := p.target, p.transport
	p.mu.Unlock()
	watches := r.URL.Query().Get("watch") == "true"
	if watches {
		p.opening.RLock()
		p.opening.RUnlock() //nolint:staticcheck // it only waits
		if p.answersBarren(w, r) {
			return
		}
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Scheme, out.URL.Host, out.Host = "", target.Scheme, target.Host, ""
	resp, err := transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler) // cuts the connection
	}
	defer func() { _ = resp.Body.Close() }()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if !watches {
		_, _ = io.Copy(w, resp.Body) // the client has disconnected
		return
	}
	p.pass(w, resp.Body, namespaceOf(r.URL.Path))
}

func namespaceOf(path string) string {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}

// pass copies a watch until its bytes are used up; then it cuts the connection.
func (p *Scissors) pass(w http.ResponseWriter, body io.Reader, namespace string) {
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	buf := make([]byte, 4096)
	for {
		n, err := body.Read(buf)
		passed, cut := p.take(namespace, n)
		if cut > 0 && cut%2 == 0 {
			reset(flusher, buf[:passed])
			return
		}
		_, _ = w.Write(buf[:passed])
		_ = flusher.Flush()
		if cut > 0 {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		if err != nil {
			return
		}
	}
}

// reset writes an incomplete chunk and resets the TCP connection.
func reset(w *http.ResponseController, text []byte) {
	conn, _, err := w.Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(conn, "%x\r\n%s", len(text)+100, text)
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// take returns how many of n bytes may pass. If the connection must be cut behind them, it also
// returns the number of the cut: every other one is a reset in the middle of a chunk.
func (p *Scissors) take(namespace string, n int) (passed, cut int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left, limited := p.left[namespace]
	switch {
	case !limited:
		return n, 0
	case n < left:
		p.left[namespace] = left - n
		return n, 0
	}
	delete(p.left, namespace)
	p.cuts++
	return left, p.cuts
}
