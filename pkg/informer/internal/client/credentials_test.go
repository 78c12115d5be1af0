package client

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// guarded is an API server with a certificate, which requires a client certificate or a token.
type guarded struct {
	*httptest.Server

	settings atomic.Pointer[tls.Config]
	token    atomic.Pointer[string]
}

func newGuarded(t *testing.T, settings *tls.Config) *guarded {
	t.Helper()
	g := &guarded{}
	g.settings.Store(settings)
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := g.token.Load(); token != nil && r.Header.Get("Authorization") != "Bearer "+*token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"metadata":{"uid":"one"}}`)
	}))
	g.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return g.settings.Load(), nil }}
	g.StartTLS()
	t.Cleanup(g.Close)
	return g
}

// become changes the certificates of the server, as a restart does.
func (g *guarded) become(settings *tls.Config) {
	g.settings.Store(settings)
	g.CloseClientConnections()
}

// kubeconfig writes a kubeconfig with these members of cluster and user.
func kubeconfig(t *testing.T, file string, cluster, user map[string]any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "k", "cluster": cluster}}, "users": []any{map[string]any{"name": "u", "user": user}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "k", "user": "u"}}},
	})
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	must.Succeed(t, err)
}

// looking makes a client that checks its files before each request.
func looking(t *testing.T, file string) *Client {
	t.Helper()
	c, err := New(config.Cluster{Kubeconfig: file}, config.Policy{})
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	c.http.Transport.(*credentials).every = 0
	return c
}

func reaches(t *testing.T, c *Client, want string) {
	t.Helper()
	_, err := c.Identity(t.Context())
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// All keys and certificates change, in the kubeconfig itself and in the files that it refers to:
// the next request uses the new ones.
func TestCredentialsChange(t *testing.T) {
	// Guarantee: credentials-change
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, write := range map[string]func(t *testing.T, dir, server, ca, cert, key string){
		"inside": func(t *testing.T, dir, server, ca, cert, key string) {
			kubeconfig(t, filepath.Join(dir, "kubeconfig"), map[string]any{"server": server, "certificate-authority-data": encode(ca)},
				map[string]any{"client-certificate-data": encode(cert), "client-key-data": encode(key)})
		},
		"files": func(t *testing.T, dir, server, ca, cert, key string) {
			for name, text := range map[string]string{"ca": ca, "cert": cert, "key": key} {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			kubeconfig(t, filepath.Join(dir, "kubeconfig"), map[string]any{"server": server, "certificate-authority": "ca"},
				map[string]any{"client-certificate": "cert", "client-key": "key"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, two, dir := sinktest.NewAuthority(t), sinktest.NewAuthority(t), t.TempDir()
			g := newGuarded(t, one.Server(time.Hour, one))
			cert, key := one.Issue(time.Hour)
			write(t, dir, g.URL, one.PEM, cert, key)
			c := looking(t, filepath.Join(dir, "kubeconfig"))
			reaches(t, c, "")
			// a new serving certificate alone needs no new transport
			g.become(one.Server(time.Hour, one))
			reaches(t, c, "")

			if name == "inside" { // client-go reads files with certificates at each connection
				write(t, dir, g.URL, one.PEM, "half a file", "")
				reaches(t, c, "")
			}

			g.become(two.Server(time.Hour, two))
			reaches(t, c, "certificate")
			write(t, dir, g.URL, two.PEM, "half a file", "")
			reaches(t, c, "certificate")
			cert, key = two.Issue(time.Hour)
			write(t, dir, g.URL, two.PEM, cert, key)
			reaches(t, c, "")
		})
	}
}

// A token in a file, and one in the kubeconfig, are used in their present form.
func TestTokenChanges(t *testing.T) {
	// Guarantee: credentials-change
	authority, dir := sinktest.NewAuthority(t), t.TempDir()
	g := newGuarded(t, authority.Server(time.Hour, nil))
	file, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	cluster := map[string]any{"server": g.URL, "certificate-authority-data": base64.StdEncoding.EncodeToString([]byte(authority.PEM))}
	good := "one"
	g.token.Store(&good)
	set := func(token, text string) {
		must.Succeed(t, os.WriteFile(token, []byte(text), 0o600))
	}
	set(token, "one")
	kubeconfig(t, file, cluster, map[string]any{"tokenFile": token})
	c := looking(t, file)
	reaches(t, c, "")
	other := "two"
	g.token.Store(&other)
	reaches(t, c, "401")
	set(token, "two")
	reaches(t, c, "")
	g.token.Store(&good)
	kubeconfig(t, file, cluster, map[string]any{"token": "one"})
	reaches(t, c, "")

	cluster["server"] = "https://elsewhere.example:6443"
	g.token.Store(&other)
	kubeconfig(t, file, cluster, map[string]any{"token": "two"})
	reaches(t, c, "401")
	g.Close()
	reaches(t, c, "it names another server, https://elsewhere.example:6443: restart the router to use that")
}

// The pause after an error that other credentials may end is no longer than the time in which a
// change of them is noticed.
func TestPauseForCredentials(t *testing.T) {
	server := newGuarded(t, nil)
	token := "right"
	server.token.Store(&token)
	failure := func(config *rest.Config) error {
		c, err := For(config)
		must.Succeed(t, err)
		defer c.Close()
		_, err = c.Identity(t.Context())
		return err
	}
	insecure := rest.TLSClientConfig{Insecure: true}
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	for name, c := range map[string]struct {
		config *rest.Config
		want   time.Duration
	}{
		"token":   {&rest.Config{Host: server.URL, TLSClientConfig: insecure, BearerToken: "wrong"}, credentialsLook},
		"CA":      {&rest.Config{Host: server.URL, BearerToken: token}, credentialsLook},
		"refused": {&rest.Config{Host: down.URL}, time.Minute},
	} {
		if err := failure(c.config); err == nil || MaxPause(time.Minute, err) != c.want {
			t.Errorf("%s: %v after %v, want %v", name, MaxPause(time.Minute, err), err, c.want)
		}
	}
}
