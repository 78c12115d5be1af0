package remote_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/internal/remote"
	"github.com/deltarouter/deltarouter/test/must"
)

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// TestPlugin shows that the token of a credential plugin reaches a router.
func TestPlugin(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin")
	must.Succeed(t, os.WriteFile(plugin, []byte(`#!/bin/sh
echo '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "of-the-user"}}'
`), 0o700))
	user := clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: plugin, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	r, cluster := newRouter(t, "of-the-user", false), newCluster(t)
	cluster.pods["ops/router-0"] = pod("Running", "api", r.port())
	client, err := open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, user)})
	must.Succeed(t, err)
	if status, err := client.Status(t.Context()); err != nil || !status.Ready {
		t.Errorf("the router answers %v, %v", status, err)
	}
}

// TestWithoutToken shows the error of a kubeconfig with a certificate alone, at a router that wants
// a token.
func TestWithoutToken(t *testing.T) {
	r, cluster := newRouter(t, "of-the-user", true), newCluster(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(ca, pemOf(r.Certificate().Raw), 0o600))
	client, err := open(t, remote.Options{Addr: r.URL, CA: ca, Kubeconfig: cluster.kubeconfig(t, clientcmdapi.AuthInfo{})})
	must.Succeed(t, err)
	_, err = client.Status(t.Context())
	must.Fail(t, err, "the router asks for credentials, and the kubeconfig has no token")
}

// TestCertificate shows that a router with TLS gets the client certificate of the kubeconfig, also
// in a tunnel, and not if the kubeconfig acts as another user.
func TestCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	user := clientcmdapi.AuthInfo{
		Token: "of-the-user", ClientCertificateData: pemOf(certificate),
		ClientKeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
	for _, c := range []struct {
		name, as string
		in, want int
	}{{"tunnel", "", 1, 1}, {"address", "", 0, 1}, {"tunnel as another", "someone", 1, 0}, {"address as another", "someone", 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			r, cluster := newRouter(t, "", true), newCluster(t)
			cluster.pods["ops/router-0"] = pod("Running", "api", r.port())
			user.Impersonate = c.as
			options := remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, user)}
			if c.in == 0 {
				options.Pod, options.Addr, options.CA = "", fmt.Sprintf("https://127.0.0.1:%d", r.port()), filepath.Join(t.TempDir(), "ca.crt")
				must.Succeed(t, os.WriteFile(options.CA, pemOf(r.Certificate().Raw), 0o600))
			}
			client, err := open(t, options)
			must.Succeed(t, err)
			_, err = client.Status(t.Context())
			must.Report(t, err)
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.certs != c.want {
				t.Errorf("%d of %d requests have a certificate, want %d", r.certs, len(r.seen), c.want)
			}
		})
	}
}
