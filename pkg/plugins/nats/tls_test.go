package nats_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// selfSigned makes a certificate of 127.0.0.1 that vouches for itself, and its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// TestTLS: the server's certificate is checked, the router shows its own, and files are read anew for each connection.
func TestTLS(t *testing.T) {
	cert, key := selfSigned(t)
	other, _ := selfSigned(t)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(cert))
	settings := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, RootCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	s := serve(t, func(o *server.Options) { o.TLSConfig, o.TLSTimeout = settings.Clone(), 20 })
	st := stream(t, admin(t, s, client.Secure(settings.Clone())), jetstream.StreamConfig{})
	url := "tls://" + s.Addr().String()
	all := events(t, "web", 2)
	own := fmt.Sprintf("cert: {file: %q}, key: {file: %q}", file(t, "cert", cert), file(t, "key", key))
	ca := file(t, "ca", other)
	for _, test := range []struct{ name, tls, want string }{
		{"nobody vouches", "{" + own + "}", "certificate signed by unknown authority"},
		{"another name", fmt.Sprintf("{ca: {file: %q}, serverName: elsewhere, %s}", file(t, "ca", cert), own), "to match elsewhere"},
		{"no own", fmt.Sprintf("{ca: {file: %q}}", file(t, "ca", cert)), "tls"},
		{"no PEM", fmt.Sprintf("{ca: {file: %q}}", file(t, "ca", "s3cret")), "tls.ca: no PEM certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := open(t, fmt.Sprintf("{servers: %q, tls: %s}", url, test.tls)).Write(t.Context(), all)
			if verdicts(2, errs) != "uu" || !strings.Contains(errs[0].Error(), test.want) || strings.Contains(errs[0].Error(), "s3cret") {
				t.Errorf("got %v, want %q", errs, test.want)
			}
		})
	}
	sink := open(t, fmt.Sprintf("{servers: %q, tls: {ca: {file: %q}, %s}}", url, ca, own))
	if errs := sink.Write(t.Context(), all); verdicts(2, errs) != "uu" {
		t.Fatalf("got %v", errs)
	}
	if err := os.WriteFile(ca, []byte(cert+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 2 {
		t.Errorf("got %v", errs)
	}
}
