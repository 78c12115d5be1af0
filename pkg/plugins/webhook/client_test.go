package webhook_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/must"
)

// authority is a certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.cert = newKey(t), template
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must.Succeed(t, err)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

// issue returns a certificate for these names, and its key.
func (a *authority) issue(until time.Time, names ...string) (cert, key []byte) {
	a.t.Helper()
	own := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	must.Succeed(a.t, err)
	text, err := x509.MarshalECPrivateKey(own)
	must.Succeed(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

func (a *authority) pair(until time.Time, names ...string) tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.issue(until, names...))
	must.Succeed(a.t, err)
	return pair
}

// encrypted serves r with the certificate in current.
func encrypted(t *testing.T, r http.Handler, current *atomic.Pointer[tls.Certificate], clients *authority) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(r)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := &tls.Config{Certificates: []tls.Certificate{*current.Load()}, MinVersion: tls.VersionTLS12}
		if clients != nil {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			c.ClientCAs.AppendCertsFromPEM(clients.pem)
		}
		return c, nil
	}}
	s.Config.SetKeepAlivesEnabled(false)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	next := file + ".next" // atomic replacement: a reader finds the old or the new content
	must.Succeed(t, os.WriteFile(next, content, 0o600))
	must.Succeed(t, os.Rename(next, file))
}

// one writes an event, and returns its result: delivered, rejected or the reason of unavailability.
func one(t *testing.T, s plugins.Sink) string {
	t.Helper()
	errs := s.Write(t.Context(), []event.Event{sample()})
	switch {
	case errs == nil:
		return "delivered"
	case plugins.ClassOf(errs[0]) == plugins.Rejected:
		return "rejected"
	}
	return errs[0].Error()
}

// TestCertificates: a receiver with an expired certificate, or one of another authority, is
// unavailable. Delivery resumes when the certificate of the receiver, or the file at the sink, is
// corrected.
func TestCertificates(t *testing.T) {
	// Guarantee: certificate-renewal
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	first, second := newAuthority(t), newAuthority(t)
	write(t, ca, first.pem)
	var current atomic.Pointer[tls.Certificate]
	use := func(c tls.Certificate) { current.Store(&c) }
	r := newReceiver()
	s := encrypted(t, r, &current, nil)
	sink := open(t, fmt.Sprintf("{url: %q, tls: {ca: {file: %q}}}", s.URL, ca))
	probe := func() error {
		return webhook.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, fmt.Sprintf("{url: %q, tls: {ca: {file: %q}}}", s.URL, ca)))
	}
	hour := time.Now().Add(time.Hour)

	use(first.pair(time.Now().Add(-time.Hour)))
	if got := one(t, sink); !strings.Contains(got, "expired") {
		t.Errorf("expired: %s", got)
	}
	if err := probe(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("probe: %v", err)
	}
	use(first.pair(hour))
	if got := one(t, sink); got != "delivered" {
		t.Errorf("renewed: %s", got)
	}
	if err := probe(); err != nil {
		t.Errorf("probe: %v", err)
	}

	use(second.pair(hour))
	s.CloseClientConnections()
	if got := one(t, sink); !strings.Contains(got, "unknown authority") {
		t.Errorf("of another authority: %s", got)
	}
	write(t, ca, []byte("half a file"))
	if got := one(t, sink); !strings.Contains(got, "tls.ca") {
		t.Errorf("with a broken file: %s", got)
	}
	write(t, ca, second.pem)
	if got := one(t, sink); got != "delivered" {
		t.Errorf("of another authority, which is trusted now: %s", got)
	}
	write(t, ca, append(first.pem, second.pem...))
	if got := one(t, sink); got != "delivered" {
		t.Errorf("of two authorities: %s", got)
	}
	if r.requests != 3 || r.acked[sample().Subject] != 3 {
		t.Errorf("%d requests for 3 deliveries", r.requests)
	}
}

// TestServerName: the certificate may have another name than the URL.
func TestServerName(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	a := newAuthority(t)
	write(t, ca, a.pem)
	var current atomic.Pointer[tls.Certificate]
	pair := a.pair(time.Now().Add(time.Hour), "hooks.example.com")
	current.Store(&pair)
	r := newReceiver()
	s := encrypted(t, r, &current, nil)
	for name, want := range map[string]string{"hooks.example.com": "delivered", "other.example.com": "match other.example.com"} {
		if got := one(t, open(t, fmt.Sprintf("{url: %q, tls: {ca: {file: %q}, serverName: %s}}", s.URL, ca, name))); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if r.requests != 1 {
		t.Errorf("%d requests", r.requests)
	}
}

// TestClientCertificate: the sink presents the certificate of the files to a receiver that requires
// one. Without a certificate, or with a wrong one, it sends nothing.
func TestClientCertificate(t *testing.T) {
	// Guarantee: certificate-renewal
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	a, other := newAuthority(t), newAuthority(t)
	write(t, ca, a.pem)
	var current atomic.Pointer[tls.Certificate]
	pair := a.pair(time.Now().Add(time.Hour))
	current.Store(&pair)
	r := newReceiver()
	s := encrypted(t, r, &current, a)
	if got := one(t, open(t, fmt.Sprintf("{url: %q, tls: {ca: {file: %q}}}", s.URL, ca))); got == "delivered" || got == "rejected" {
		t.Errorf("without a certificate: %s", got)
	}
	sink := open(t, fmt.Sprintf("{url: %q, tls: {ca: {file: %q}, cert: {file: %q}, key: {file: %q}}}", s.URL, ca, cert, key))
	put := func(a *authority) {
		c, k := a.issue(time.Now().Add(time.Hour))
		write(t, cert, c)
		write(t, key, k)
	}
	if got := one(t, sink); !strings.Contains(got, "tls.cert") {
		t.Errorf("without files: %s", got)
	}
	put(other)
	if got := one(t, sink); got == "delivered" || got == "rejected" {
		t.Errorf("of another authority: %s", got)
	}
	put(a)
	if got := one(t, sink); got != "delivered" {
		t.Errorf("with a certificate: %s", got)
	}
	c, _ := a.issue(time.Now().Add(time.Hour))
	write(t, cert, c) // the key does not match yet
	if got := one(t, sink); !strings.Contains(got, "tls.key") || strings.Contains(got, "BEGIN") {
		t.Errorf("with the key of another: %s", got)
	}
	put(a)
	if got := one(t, sink); got != "delivered" {
		t.Errorf("with a new certificate: %s", got)
	}
	if r.requests != 2 {
		t.Errorf("%d requests for 2 deliveries", r.requests)
	}
}

// proxyEnv has the configuration of the process that TestProxy starts.
const proxyEnv = "DELTAROUTER_TEST_RECEIVER"

// TestProxy: the sink uses the proxy of the environment. A process reads it once, so the test runs
// in a separate process. Without the proxy the receiver's name does not resolve. With https the
// proxy sees only the name. A probe connects to the proxy and sends no request.
func TestProxy(t *testing.T) {
	// Guarantee: check-sends-nothing
	if config := os.Getenv(proxyEnv); config != "" {
		fmt.Println("result:", one(t, open(t, config)))
		fmt.Println("probe:", webhook.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)))
		return
	}
	ca := filepath.Join(t.TempDir(), "ca")
	a := newAuthority(t)
	write(t, ca, a.pem)
	var current atomic.Pointer[tls.Certificate]
	pair := a.pair(time.Now().Add(time.Hour), "hooks.invalid")
	current.Store(&pair)
	r := newReceiver()
	s := encrypted(t, r, &current, nil)
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked <- req.Method + " " + req.Host
		if req.Method == http.MethodConnect {
			connectTo(t, w, s.Listener.Addr().String())
			return
		}
		r.ServeHTTP(w, req)
	}))
	defer proxy.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	const here, there = "http://hooks.invalid/s3cret", "https://hooks.invalid/s3cret"
	for _, c := range []struct{ url, proxy, except, want, result, probe string }{
		{here, proxy.URL, "", "POST hooks.invalid", "delivered", "<nil>"},
		{there, proxy.URL, "", "CONNECT hooks.invalid:443", "delivered", "<nil>"},
		{here, proxy.URL, "other.invalid", "POST hooks.invalid", "delivered", "<nil>"},
		{here, proxy.URL, "hooks.invalid", "", `webhook "hook": http://hooks.invalid: `, "http://hooks.invalid: "},
		{there, gone.URL, "", "", `webhook "hook": https://hooks.invalid: `, "proxy " + gone.URL + ": dial"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxy$", "-test.count=1")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s={url: %q, tls: {ca: {file: %q}}}", proxyEnv, c.url, ca),
			"HTTP_PROXY="+c.proxy, "HTTPS_PROXY="+c.proxy, "NO_PROXY="+c.except, "no_proxy=")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "result: "+c.result) || !strings.Contains(string(out), "probe: "+c.probe) || strings.Contains(string(out), "s3cret") {
			t.Fatalf("%s: %v: %s", c.url, err, out)
		}
		got := ""
		if len(asked) > 0 { // it has responded, so asked contains the request
			got = <-asked
		}
		if got != c.want {
			t.Errorf("the proxy was asked for %q, want %q", got, c.want)
		}
	}
	if len(asked) != 0 || r.requests != 3 {
		t.Errorf("the proxy was asked %d times more, %d requests arrived", len(asked), r.requests)
	}
}

// connectTo opens a tunnel.
func connectTo(t *testing.T, w http.ResponseWriter, address string) {
	t.Helper()
	to, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(to, bufio.NewReader(buffered)); _ = to.Close() })
	_, _ = io.Copy(conn, to)
	_ = conn.Close()
	both.Wait()
}
