// Package kubelettest is a stand-in for a kubelet, which the sandbox has not: it serves
// port-forward with the library of the kubelet, and the ports of its pods are those of this
// machine.
package kubelettest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// streamTimeout bounds the time between the two streams of a connection, and the idle time of a
// tunnel.
const streamTimeout = time.Hour

// Kubelet serves port-forward for any pod.
type Kubelet struct {
	*httptest.Server

	mu    sync.Mutex
	conns map[net.Conn]bool // the open tunnels
}

// Start starts a kubelet with TLS, as the API server expects it, for the time of the test.
func Start(tb testing.TB) *Kubelet {
	tb.Helper()
	k := &Kubelet{conns: make(map[net.Conn]bool)}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Serve(w, r) }))
	k.Config.ConnState = k.track
	k.StartTLS()
	tb.Cleanup(func() {
		k.Break()
		k.Close()
	})
	return k
}

// track keeps the connections that are tunnels.
func (k *Kubelet) track(c net.Conn, state http.ConnState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if state == http.StateHijacked {
		k.conns[c] = true
	}
}

// Break closes the tunnels, as happens when a pod is deleted.
func (k *Kubelet) Break() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close() // it may be closed already
	}
	clear(k.conns)
}

// Port returns the port of the kubelet.
func (k *Kubelet) Port() int {
	return k.Listener.Addr().(*net.TCPAddr).Port
}

// Node returns the manifest of a node with this kubelet. Its status is in it.
func (k *Kubelet) Node(name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {addresses: [{type: InternalIP, address: 127.0.0.1}],
  daemonEndpoints: {kubeletEndpoint: {Port: %d}}}}`, name, k.Port())
}

// Serve answers one request for a port-forward over SPDY, until the tunnel is closed.
func Serve(w http.ResponseWriter, r *http.Request) {
	// As in the kubelet. It refuses a WebSocket of a client for newer API servers, which an older
	// API server passes on.
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, loopback{}, r.URL.Path, "", options, streamTimeout, streamTimeout, []string{portforward.ProtocolV1Name})
}

// loopback forwards to the ports of this machine.
type loopback struct{}

// PortForward implements portforward.PortForwarder.
func (loopback) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream) // the other direction ends the connection
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}
