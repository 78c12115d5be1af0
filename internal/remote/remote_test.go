package remote_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/remote"
	"github.com/deltarouter/deltarouter/test/kubelettest"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	leaks.Main(m,
		// After the end of a tunnel, this goroutine of the library waits a second for a reader.
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"),
		// This one of the kubelet stays if the tunnel ends before it has accepted the stream.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).waitWriteReply"))
}

// router is the API of a router as far as these tests need one. It wants a token if it has one.
type router struct {
	*httptest.Server

	token string

	mu    sync.Mutex
	seen  []string // the Authorization of each request
	certs int      // requests with a client certificate
}

func newRouter(t *testing.T, token string, secure bool) *router {
	t.Helper()
	r := &router{token: token}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if secure {
		r.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP implements http.Handler.
func (r *router) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	given := request.Header.Get("Authorization")
	r.seen = append(r.seen, given)
	if request.TLS != nil && len(request.TLS.PeerCertificates) > 0 {
		r.certs++
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.token != "" && given != "Bearer "+r.token:
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": "who are you?"}`)
	case strings.HasPrefix(request.URL.Path, "/api/v1/tap"):
		fmt.Fprintln(w, `{"op": "added", "key": "ops/one"}`)
		_ = http.NewResponseController(w).Flush()
		r.mu.Unlock()
		<-request.Context().Done()
		r.mu.Lock()
	case request.Method == http.MethodPost:
		body, _ := io.ReadAll(request.Body)
		fmt.Fprintf(w, `{"sources": [{"name": %q}]}`, body)
	default:
		fmt.Fprint(w, `{"ready": true}`)
	}
}

func (r *router) port() int { return r.Listener.Addr().(*net.TCPAddr).Port }

// requests returns the Authorization of each request so far.
func (r *router) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.seen...)
}

// cluster is an API server with pods, before which a proxy refuses WebSockets.
type cluster struct {
	*httptest.Server

	pods    map[string]string // NAMESPACE/NAME: the JSON
	refuse  int               // status for pods/portforward; 0: it is served
	tunnels sync.Map          // net.Conn: true
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{pods: make(map[string]string)}
	c.Server = httptest.NewUnstartedServer(c)
	c.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateHijacked {
			c.tunnels.Store(conn, true)
		}
	}
	c.StartTLS() // a kubeconfig has credentials for TLS only
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/"), "/")
	pod, ok := c.pods[parts[0]+"/"+parts[2]]
	switch forward := len(parts) == 4; {
	case request.Header.Get("Authorization") != "Bearer of-the-user":
		answer(w, http.StatusUnauthorized, "Unauthorized")
	case !ok:
		answer(w, http.StatusNotFound, "pods not found")
	case !forward:
		fmt.Fprint(w, pod)
	case request.Method == http.MethodGet:
		answer(w, http.StatusBadRequest, "no WebSocket here")
	case c.refuse != 0:
		answer(w, c.refuse, "not for you")
	default:
		kubelettest.Serve(w, request)
	}
}

func answer(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status})
}

// pod returns a pod in JSON, with a port of this name.
func pod(phase, portName string, port int) string {
	return fmt.Sprintf(`{"kind": "Pod", "spec": {"containers": [{"name": "sidecar"}, {"name": "router", "ports": [
		{"name": "probes", "containerPort": 1}, {"name": %[1]q, "containerPort": %[2]d}]},
		{"name": "other", "ports": [{"name": "api", "containerPort": 2}]}]}, "status": {"phase": %[3]q}}`, portName, port, phase)
}

// kubeconfig writes a kubeconfig whose context is in the namespace ops.
func (c *cluster) kubeconfig(t *testing.T, user clientcmdapi.AuthInfo) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: pemOf(c.Certificate().Raw)}
	k.AuthInfos["u"] = &user
	k.Contexts["here"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: "ops"}
	k.CurrentContext = "here"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*k, file))
	return file
}

var ofTheUser = clientcmdapi.AuthInfo{Token: "of-the-user"}

// open returns a client whose tunnel ends with the test.
func open(t *testing.T, o remote.Options) (*api.Client, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return remote.Open(ctx, o)
}

// TestInPod shows that the token of the kubeconfig goes to a router that asks for it, and to no
// other, with and without TLS, and that the port is that of the container or the default.
func TestInPod(t *testing.T) {
	// Guarantee: cli-in-pod
	for _, c := range []struct {
		name, pod, token string
		secure           bool
		want             []string // the tokens of two requests
	}{
		{name: "without authentication", pod: "ops/router-0", want: []string{"", ""}},
		{name: "in the namespace of the context", pod: "router-0", want: []string{"", ""}},
		{name: "with a token", pod: "ops/router-0", token: "of-the-user", want: []string{"", "Bearer of-the-user", "Bearer of-the-user"}},
		{name: "TLS", pod: "ops/router-0", secure: true, want: []string{"", ""}},
		{name: "TLS with a token", pod: "ops/router-0", token: "of-the-user", secure: true, want: []string{"", "Bearer of-the-user", "Bearer of-the-user"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, cluster := newRouter(t, c.token, c.secure), newCluster(t)
			cluster.pods["ops/router-0"] = pod("Running", "api", r.port())
			client, err := open(t, remote.Options{Pod: c.pod, Kubeconfig: cluster.kubeconfig(t, ofTheUser)})
			must.Succeed(t, err)
			done, err := client.Resync(t.Context(), api.Resync{Source: "s"})
			if err != nil || len(done.Sources) != 1 || !strings.Contains(done.Sources[0].Name, `"source":"s"`) {
				t.Errorf("the router answers %v, %v", done, err)
			}
			if status, err := client.Status(t.Context()); err != nil || !status.Ready {
				t.Errorf("the router answers %v, %v", status, err)
			}
			if got := r.requests(); strings.Join(got, ",") != strings.Join(c.want, ",") {
				t.Errorf("the router got the credentials %q, want %q", got, c.want)
			}
		})
	}
}

// resetting is a listener whose first connection is reset.
type resetting struct {
	net.Listener

	once sync.Once
}

func (l *resetting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.once.Do(func() { _ = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()) })
	return conn, nil
}

// TestReset reaches a router without TLS that resets the connection with which TLS is tried.
func TestReset(t *testing.T) {
	r, cluster := &router{}, newCluster(t)
	r.Server = httptest.NewUnstartedServer(r)
	r.Server.Listener = &resetting{Listener: r.Server.Listener}
	r.Start()
	t.Cleanup(r.Close)
	cluster.pods["ops/router-0"] = pod("Running", "api", r.port())
	client, err := open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, ofTheUser)})
	must.Succeed(t, err)
	if status, err := client.Status(t.Context()); err != nil || !status.Ready {
		t.Errorf("the router answers %v, %v", status, err)
	}
}

// TestRefused shows the errors of each step on the way to a router.
func TestRefused(t *testing.T) {
	r, cluster := newRouter(t, "another", false), newCluster(t)
	closed := newRouter(t, "", false)
	closed.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, silent.Close()) })
	go func() { // serves no HTTP
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail ready\r\n"))
			_ = conn.Close()
		}
	}()
	cluster.pods = map[string]string{
		"ops/router-0": pod("Running", "api", r.port()),
		"ops/pending":  pod("Pending", "api", r.port()),
		"ops/closed":   pod("Running", "api", closed.port()),
		"ops/mail":     pod("Running", "api", silent.Addr().(*net.TCPAddr).Port),
		"ops/going":    strings.Replace(pod("Running", "api", 1), `"spec"`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec"`, 1),
	}
	acting := ofTheUser
	acting.Impersonate = "someone"
	for _, c := range []struct {
		pod, context string
		user         clientcmdapi.AuthInfo
		refuse       int
		want         string
	}{
		{pod: "ops/none", want: "there is no pod ops/none in the cluster " + cluster.URL + ": see kubectl -n ops get pods"},
		{pod: "ops/pending", want: "pod ops/pending does not run, its phase is Pending: see kubectl -n ops describe pod pending"},
		{pod: "ops/going", want: "pod ops/going is being deleted: wait for its successor"},
		{pod: "closed", want: fmt.Sprintf(`in pod ops/closed no process listens on 127.0.0.1:%d: set listen.api to that, or name its port of the container "api"`, closed.port())},
		{pod: "ops/mail", want: "of pod ops/mail serves neither HTTP nor TLS: is it the port of listen.api?"},
		{pod: "ops/router-0", want: "who are you?"},
		{pod: "ops/router-0", user: acting, want: "the router asks for credentials, and the kubeconfig acts as another user (as: someone)"},
		{pod: "ops/router-0", user: clientcmdapi.AuthInfo{Token: "wrong"}, want: "does not accept the credentials of the kubeconfig: log in again, or choose another -context"},
		{pod: "ops/router-0", refuse: http.StatusForbidden, want: "you may not reach pod ops/router-0: a role in the namespace ops must allow create on pods/portforward (not for you)"},
		{pod: "ops/router-0", refuse: http.StatusBadGateway, want: "refuses to reach pod ops/router-0: not for you"},
		{pod: "ops/router-0", context: "there", want: `context there): context "there" does not exist`},
		{pod: "a/b/c", want: "-in a/b/c: write NAMESPACE/POD, or POD"},
		{pod: "/b", want: "-in /b: write NAMESPACE/POD, or POD"},
	} {
		t.Run(c.pod+"/"+c.want[:10], func(t *testing.T) {
			user := c.user
			if user.Token == "" {
				user = ofTheUser
			}
			cluster.refuse = c.refuse
			client, err := open(t, remote.Options{Pod: c.pod, Context: c.context, Kubeconfig: cluster.kubeconfig(t, user)})
			if err == nil {
				_, err = client.Status(t.Context())
			}
			must.Fail(t, err, c.want)
		})
	}
	cluster.Close()
	_, err = open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, ofTheUser)})
	must.Fail(t, err, "the API server "+cluster.URL+" cannot be asked for pod ops/router-0: ")
	_, err = open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: filepath.Join(t.TempDir(), "none")})
	must.Fail(t, err, "no usable kubeconfig (")
}

// TestLost follows a stream through a tunnel, which ends with one error.
func TestLost(t *testing.T) {
	// Guarantee: cli-in-pod
	r, cluster := newRouter(t, "", false), newCluster(t)
	cluster.pods["ops/router-0"] = pod("Running", "api", r.port())
	client, err := open(t, remote.Options{Pod: "ops/router-0", Kubeconfig: cluster.kubeconfig(t, ofTheUser)})
	must.Succeed(t, err)
	err = client.Tap(t.Context(), api.TapQuery{}, func(api.Tapped) error {
		cluster.tunnels.Range(func(c, _ any) bool {
			_ = c.(net.Conn).Close()
			return true
		})
		return nil
	})
	const lost = "the connection to pod ops/router-0 was lost: it may have been deleted or restarted; see kubectl -n ops get pod router-0, and run the command again"
	if err == nil || err.Error() != lost {
		t.Errorf("the tap ended with %v", err)
	}
	if _, err := client.Status(t.Context()); err == nil || err.Error() != lost {
		t.Errorf("the next request: %v", err)
	}
}

// TestAddress shows the ways to a router without a tunnel.
func TestAddress(t *testing.T) {
	// Guarantee: cli-in-pod
	plain, secure := newRouter(t, "of-the-user", false), newRouter(t, "of-the-user", true)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	must.Succeed(t, os.WriteFile(ca, pemOf(secure.Certificate().Raw), 0o600))
	kubeconfig, certificate := newCluster(t).kubeconfig(t, ofTheUser), string(pemOf(secure.Certificate().Raw))
	another := string(pemOf([]byte("another")))
	at := plain.Listener.Addr().String()
	for _, c := range []struct {
		name    string
		options remote.Options
		want    string // of the error; empty: none
	}{
		{"loopback with credentials", remote.Options{Addr: at, Kubeconfig: kubeconfig}, ""},
		{"loopback without credentials", remote.Options{Addr: at}, "the router asks for credentials: choose those of a kubeconfig with -context or -kubeconfig"},
		{"TLS with credentials", remote.Options{Addr: secure.URL, CA: ca, Kubeconfig: kubeconfig}, ""},
		{"TLS with a slash", remote.Options{Addr: secure.URL + "/", CA: ca, Kubeconfig: kubeconfig, Context: "here"}, ""},
		{"TLS without credentials", remote.Options{Addr: secure.URL, CA: ca}, "the router asks for credentials: choose those of a kubeconfig with -context or -kubeconfig"},
		{"unknown authority", remote.Options{Addr: secure.URL, Kubeconfig: kubeconfig}, "certificate signed by unknown authority"},
		{"no authority", remote.Options{Addr: secure.URL, CA: kubeconfig}, "the file has no PEM certificate"},
		{"no file", remote.Options{Addr: secure.URL, CA: ca + "x"}, "there is no such file"},
		{"two", remote.Options{Addr: at, Pod: "p"}, "-in and -api both name a router"},
		{"ca without TLS", remote.Options{Addr: at, CA: ca}, "-ca is for -api https://HOST:PORT"},
		{"ca of a tunnel", remote.Options{Pod: "p", CA: ca}, "-ca is for -api https://HOST:PORT"},
		{"http", remote.Options{Addr: plain.URL}, "leave http:// out"},
		{"a path", remote.Options{Addr: secure.URL + "/api"}, "write https://HOST:PORT"},
		{"pinned", remote.Options{Addr: strings.TrimPrefix(secure.URL, "https://"), Certificate: certificate, Context: "here", Kubeconfig: kubeconfig}, ""},
		{"pinned, all addresses", remote.Options{Addr: fmt.Sprintf(":%d", secure.port()), Certificate: certificate, Kubeconfig: kubeconfig}, ""},
		{"pinned without credentials", remote.Options{Addr: fmt.Sprintf(":%d", secure.port()), Certificate: certificate}, "the router asks for credentials"},
		{"another certificate", remote.Options{Addr: strings.TrimPrefix(secure.URL, "https://"), Certificate: another, Kubeconfig: kubeconfig}, "has another certificate than the configuration of the router (listen.tls.cert)"},
		{"no certificate", remote.Options{Addr: at, Certificate: "-"}, "do not fit"},
		{"credentials in the clear", remote.Options{Addr: "router.example:8484", Kubeconfig: kubeconfig}, "the credentials of a kubeconfig are not sent without TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := open(t, c.options)
			if err == nil {
				_, err = client.Status(t.Context())
			}
			if c.want != "" {
				must.Fail(t, err, c.want)
			} else {
				must.Report(t, err)
			}
		})
	}
}
