package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files in DIR/keys.
const (
	caCert      = "ca.crt"
	servingCert = "serving.crt"
	servingKey  = "serving.key"
	accountKey  = "service-account.key"
)

// validity exceeds the lifetime of any sandbox folder.
const validity = 10 * 365 * 24 * time.Hour

func (d *dir) key(name string) string { return filepath.Join(d.path, keysDir, name) }

// loadKeys makes the keys and certificates unless an earlier start has made them. It does not keep
// the key of the CA: it signs nothing else.
func (d *dir) loadKeys() error {
	// The service-account key is written last, so its existence means that all of them exist.
	if _, err := os.Stat(d.key(accountKey)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.path, keysDir), 0o700); err != nil {
		return err
	}
	authority, authorityKey, err := d.makeAuthority()
	if err != nil {
		return err
	}
	if err := d.makeServing(authority, authorityKey); err != nil {
		return err
	}
	account, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return d.writeKey(accountKey, account)
}

// makeAuthority makes the certificate that the kubeconfigs trust.
func (d *dir) makeAuthority() (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "sandbox-ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	if err := d.writePEM(caCert, "CERTIFICATE", der, 0o644); err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return parsed, key, err
}

// makeServing makes the certificate of the API server. Its names have no port, so it is also valid
// for a proxy in front of the server.
func (d *dir) makeServing(authority *x509.Certificate, authorityKey crypto.Signer) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	if err := d.writePEM(servingCert, "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return d.writeKey(servingKey, key)
}

func (d *dir) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return d.writePEM(name, "EC PRIVATE KEY", der, 0o600)
}

func (d *dir) writePEM(name, kind string, der []byte, mode fs.FileMode) error {
	return replaceFile(d.key(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
