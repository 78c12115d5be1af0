package chaos

import (
	"fmt"
	"io"
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
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// scissors is a proxy of an API server that speaks HTTP without TLS, so that a connection can be
// cut after any byte of a watch: each byte that it writes is a byte that the client reads. Every
// other cut is a reset in the middle of a chunk.
type scissors struct {
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

func newScissors(t *testing.T, s *sandboxtest.Sandbox) *scissors {
	t.Helper()
	p := &scissors{left: make(map[string]int), droughts: make(map[string]drought), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	p.lead(t, s)
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	config := api.Config{
		Clusters:       map[string]*api.Cluster{"c": {Server: p.URL}},
		Contexts:       map[string]*api.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}
	must.Succeed(t, clientcmd.WriteToFile(config, p.kubeconfig))
	return p
}

// lead directs new requests to an API server.
func (p *scissors) lead(t *testing.T, s *sandboxtest.Sandbox) {
	t.Helper()
	transport, err := rest.TransportFor(s.RESTConfig())
	must.Succeed(t, err)
	target, err := url.Parse(s.RESTConfig().Host)
	must.Succeed(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target, p.transport = target, transport
}

// after makes the watch of a namespace break once, after n more bytes.
func (p *scissors) after(namespace string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[namespace] = n
}

func (p *scissors) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *scissors) serve(w http.ResponseWriter, r *http.Request) {
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
func (p *scissors) pass(w http.ResponseWriter, body io.Reader, namespace string) {
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
func (p *scissors) take(namespace string, n int) (passed, cut int) {
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

// blackHole forwards TCP connections until freeze stops all existing ones silently; later ones
// work. It behaves like a firewall that has dropped its connections.
type blackHole struct {
	kubeconfig string
	target     string
	listener   net.Listener
	running    sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed to freeze the existing connections
	all    []net.Conn
}

func newBlackHole(t *testing.T, s *sandboxtest.Sandbox) *blackHole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
	must.Succeed(t, err)
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	must.Succeed(t, err)
	b := &blackHole{listener: listener, frozen: make(chan struct{}), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	b.target = strings.TrimPrefix(s.RESTConfig().Host, "https://")
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + listener.Addr().String()
	}
	must.Succeed(t, clientcmd.WriteToFile(*config, b.kubeconfig))
	b.running.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

func (b *blackHole) close() {
	_ = b.listener.Close()
	b.freeze()
	b.mu.Lock()
	for _, c := range b.all {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// freeze stops the open connections.
func (b *blackHole) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.frozen)
	b.frozen = make(chan struct{})
}

func (b *blackHole) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", b.target) //nolint:noctx // ends with the test
		if err != nil {
			_ = client.Close()
			continue
		}
		b.mu.Lock()
		b.all = append(b.all, client, server)
		frozen := b.frozen
		b.mu.Unlock()
		b.running.Go(func() { b.copy(client, server, frozen) })
		b.running.Go(func() { b.copy(server, client, frozen) })
	}
}

// copy forwards bytes. A frozen copy discards them, like a network that loses packets, but closes
// nothing.
func (b *blackHole) copy(to, from net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			_ = to.Close()
			return
		}
	}
}
