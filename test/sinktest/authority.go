package sinktest

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
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// Authority is a certificate authority.
type Authority struct {
	PEM string // its own certificate

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that no system trusts.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-3 * time.Hour), NotAfter: time.Now().Add(3 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must.Succeed(t, err)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = encode("CERTIFICATE", der)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Issue makes a certificate of 127.0.0.1 with a lifetime (negative: expired) and its key.
func (a *Authority) Issue(last time.Duration) (cert, key string) { return a.IssueTo("", last) }

// IssueTo is Issue for a user, whose name is the common name.
func (a *Authority) IssueTo(user string, last time.Duration) (cert, key string) {
	a.t.Helper()
	own := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(last), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	must.Succeed(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	must.Succeed(a.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret)
}

// Server returns the settings of a server with a certificate of this lifetime. With clients, it
// demands client certificates of that authority.
func (a *Authority) Server(last time.Duration, clients *Authority) *tls.Config {
	a.t.Helper()
	cert, key := a.Issue(last)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	must.Succeed(a.t, err)
	settings := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients != nil {
		settings.ClientAuth, settings.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		settings.ClientCAs.AppendCertsFromPEM([]byte(clients.PEM))
	}
	return settings
}

// Client returns the settings of a client that trusts this authority, and has a certificate of it.
func (a *Authority) Client() *tls.Config {
	settings := a.Server(time.Hour, nil)
	settings.RootCAs = x509.NewCertPool()
	settings.RootCAs.AppendCertsFromPEM([]byte(a.PEM))
	return settings
}

// Files returns the keys cert and key of a configuration with a certificate of this authority.
func (a *Authority) Files() string {
	cert, key := a.Issue(time.Hour)
	return fmt.Sprintf("cert: {file: %q}, key: {file: %q}", File(a.t, "cert", cert), File(a.t, "key", key))
}
