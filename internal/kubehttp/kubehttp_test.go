package kubehttp

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// hostile answers with a header whose size is in the query.
func hostile(w http.ResponseWriter, r *http.Request) {
	var size int
	if _, err := fmt.Sscan(r.URL.RawQuery, &size); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for i := range size >> 10 {
		w.Header().Set(fmt.Sprintf("X-Large-%d", i), strings.Repeat("x", 1<<10))
	}
	w.WriteHeader(http.StatusOK)
}

func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return err
}

// TestHeadersAreBounded shows the bound for every kind of credentials, since client-go wraps its
// transport in another type for each.
func TestHeadersAreBounded(t *testing.T) {
	// Guarantee: headers-bounded
	authority := sinktest.NewAuthority(t)
	cert, key := authority.Issue(time.Hour)
	ca, certFile, keyFile := sinktest.File(t, "ca", authority.PEM), sinktest.File(t, "cert", cert), sinktest.File(t, "key", key)
	token := sinktest.File(t, "token", "secret")
	script := `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret"}}'`
	exec := &clientcmdapi.ExecConfig{
		Command: "/bin/sh", Args: []string{"-c", script}, APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	pem := rest.TLSClientConfig{CAData: []byte(authority.PEM)}
	for name, cfg := range map[string]*rest.Config{
		"plain":        {},
		"CA":           {TLSClientConfig: pem},
		"CA in a file": {TLSClientConfig: rest.TLSClientConfig{CAFile: ca}},
		"all in files": {TLSClientConfig: rest.TLSClientConfig{CAFile: ca, CertFile: certFile, KeyFile: keyFile}},
		"HTTP/1.1":     {TLSClientConfig: rest.TLSClientConfig{CAFile: ca, NextProtos: []string{"http/1.1"}}},
		"insecure":     {TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"token":        {TLSClientConfig: pem, BearerToken: "secret"},
		"token file":   {TLSClientConfig: pem, BearerTokenFile: token, Impersonate: rest.ImpersonationConfig{UserName: "other"}},
		"exec":         {TLSClientConfig: pem, ExecProvider: exec},
		"wrapped":      {WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return struct{ http.RoundTripper }{rt} }},
	} {
		t.Run(name, func(t *testing.T) {
			wantToken := cfg.BearerToken+cfg.BearerTokenFile != "" || cfg.ExecProvider != nil
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if wantToken && (r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Impersonate-User") != cfg.Impersonate.UserName) {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				hostile(w, r)
			}))
			switch {
			case cfg.CertFile != "":
				server.TLS = authority.Server(time.Hour, authority)
			case name != "plain" && name != "wrapped":
				server.TLS = authority.Server(time.Hour, nil)
			}
			server.EnableHTTP2 = name != "HTTP/1.1"
			if server.TLS == nil {
				server.Start()
			} else {
				server.StartTLS()
			}
			t.Cleanup(server.Close)
			cfg.Host = server.URL
			transport, err := TransportFor(cfg)
			must.Succeed(t, err)
			t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(transport) })
			client := &http.Client{Transport: transport}
			if err := get(t, client, server.URL+"?32768"); err != nil {
				t.Errorf("32 KiB: %v", err)
			}
			if err := get(t, client, server.URL+"?1048576"); err == nil {
				t.Error("1 MiB is read")
			}
		})
	}
}

// TestTransportIsOwn shows that two transports of the same configuration share no connections, and
// do not use the process's default transport.
func TestTransportIsOwn(t *testing.T) {
	one, err := TransportFor(&rest.Config{Host: "http://127.0.0.1:1"})
	must.Succeed(t, err)
	two, err := TransportFor(&rest.Config{Host: "http://127.0.0.1:1"})
	must.Succeed(t, err)
	if one == two || one == http.DefaultTransport {
		t.Errorf("%T is shared", one)
	}
	if http.DefaultTransport.(*http.Transport).MaxResponseHeaderBytes != 0 {
		t.Error("the default transport is changed")
	}
	own := &http.Transport{MaxResponseHeaderBytes: 1}
	if _, err := TransportFor(&rest.Config{Transport: own}); err != nil || own.MaxResponseHeaderBytes != 1 {
		t.Errorf("a transport of the caller's: %v, bound %d", err, own.MaxResponseHeaderBytes)
	}
	if _, err := TransportFor(&rest.Config{Transport: struct{ http.RoundTripper }{own}}); err != nil {
		t.Errorf("another kind of transport: %v", err)
	}
}
