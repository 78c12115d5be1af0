package listener_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/internal/listener"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestRefusals shows the errors of addresses that cannot be used. The tests of the API show the
// sockets.
func TestRefusals(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer used.Close()
	for addr, want := range map[string]string{
		used.Addr().String(): "another process listens there",
		"192.0.2.1:0":        "this machine does not have it",
		listener.UnixPrefix + filepath.Join(t.TempDir(), "no", "api.sock"): "cannot be created",
	} {
		_, err := listener.Listen(t.Context(), addr)
		must.Fail(t, err, want)
	}
}
