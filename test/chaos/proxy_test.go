package chaos

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// blackHole forwards TCP connections until freeze stops all existing ones silently; later ones
// work. It behaves like a firewall that has dropped its connections.
type blackHole struct {
	kubeconfig string
	target     string
	listener   net.Listener
	running    sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed to freeze the existing connections
	all    []net.Conn
}

func newBlackHole(t *testing.T, s *sandboxtest.Sandbox) *blackHole {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
	must.Succeed(t, err)
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	must.Succeed(t, err)
	b := &blackHole{listener: listener, frozen: make(chan struct{}), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	b.target = strings.TrimPrefix(s.RESTConfig().Host, "https://")
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + listener.Addr().String()
	}
	must.Succeed(t, clientcmd.WriteToFile(*config, b.kubeconfig))
	b.running.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

func (b *blackHole) close() {
	_ = b.listener.Close()
	b.freeze()
	b.mu.Lock()
	for _, c := range b.all {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// freeze stops the open connections.
func (b *blackHole) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.frozen)
	b.frozen = make(chan struct{})
}

func (b *blackHole) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", b.target) //nolint:noctx // ends with the test
		if err != nil {
			_ = client.Close()
			continue
		}
		b.mu.Lock()
		b.all = append(b.all, client, server)
		frozen := b.frozen
		b.mu.Unlock()
		b.running.Go(func() { b.copy(client, server, frozen) })
		b.running.Go(func() { b.copy(server, client, frozen) })
	}
}

// copy forwards bytes. A frozen copy discards them, like a network that loses packets, but closes
// nothing.
func (b *blackHole) copy(to, from net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			_ = to.Close()
			return
		}
	}
}
