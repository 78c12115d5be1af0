package tlsfiles_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// pair makes the files of a certificate that signs itself, in a folder as cert-manager has it: the
// files are links through the link data, which a renewal replaces.
func pair(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"router"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	must.Succeed(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	at := filepath.Join(dir, name)
	must.Succeed(t, os.Mkdir(at, 0o700))
	for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: cert}, "tls.key": {Type: "PRIVATE KEY", Bytes: text}} {
		must.Succeed(t, os.WriteFile(filepath.Join(at, file), pem.EncodeToMemory(block), 0o600))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(at, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
}

// use replaces the link data.
func use(t *testing.T, dir, name string) {
	t.Helper()
	next := filepath.Join(dir, "next")
	must.Succeed(t, os.Symlink(name, next))
	must.Succeed(t, os.Rename(next, filepath.Join(dir, "data")))
}

// shown returns the name in the certificate that a server shows, and whether it requests one.
func shown(t *testing.T, s *tlsfiles.Server) (name string, requested bool) {
	t.Helper()
	ours, theirs := net.Pipe()
	server := tls.Server(theirs, s.Config())
	done := make(chan error, 1)
	go func() { done <- server.HandshakeContext(t.Context()) }()
	client := tls.Client(ours, &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			requested = true
			return &tls.Certificate{}, nil
		},
	})
	must.Succeed(t, client.HandshakeContext(t.Context()))
	must.Succeed(t, <-done)
	name = client.ConnectionState().PeerCertificates[0].Subject.CommonName
	must.Report(t, ours.Close())
	must.Report(t, theirs.Close())
	return name, requested
}

// TestServer shows that new connections use a renewed certificate, and the former one while the
// files cannot be used.
func TestServer(t *testing.T) {
	// Guarantee: certificate-renewal
	dir := t.TempDir()
	pair(t, dir, "one")
	pair(t, dir, "two")
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "mixed"), 0o700))
	for from, to := range map[string]string{"one/tls.crt": "mixed/tls.crt", "two/tls.key": "mixed/tls.key", "one/ca.crt": "mixed/ca.crt"} {
		must.Succeed(t, os.Symlink(filepath.Join(dir, from), filepath.Join(dir, to)))
	}
	use(t, dir, "one")
	node, problems := config.ParseNode("test.yaml", []byte(strings.ReplaceAll(
		"{api: \"127.0.0.1:1\", access: kubernetes, tls: {cert: {file: DIR/tls.crt}, key: {file: DIR/tls.key}, clientCA: {file: DIR/ca.crt}}}", "DIR", filepath.Join(dir, "data"))))
	must.Succeed(t, problems.Err())
	var listen config.Listen
	must.Succeed(t, node.Decode(&listen).Err())
	var log bytes.Buffer
	s, err := tlsfiles.NewServer(listen, slog.New(slog.NewTextHandler(&log, nil)))
	must.Succeed(t, err)
	cas := s.ClientCAs()
	for _, step := range []struct{ folder, want string }{{"one", "one"}, {"two", "two"}, {"mixed", "two"}, {"none", "two"}, {"one", "one"}} {
		use(t, dir, step.folder)
		if name, requested := shown(t, s); name != step.want || !requested {
			t.Errorf("%s: it shows %s, and requests a certificate: %t", step.folder, name, requested)
		}
		shown(t, s) // a failure is logged once
	}
	if !s.ClientCAs().Equal(cas) {
		t.Error("other authorities")
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 || strings.Contains(log.String(), "BEGIN") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	use(t, dir, "mixed")
	_, err = tlsfiles.NewServer(listen, slog.New(slog.DiscardHandler))
	must.Fail(t, err, "listen.tls.cert and listen.tls.key: tls: private key does not match public key")
	use(t, dir, "none")
	_, err = tlsfiles.NewServer(listen, slog.New(slog.DiscardHandler))
	must.Fail(t, err, "listen.tls.cert: ")
}
