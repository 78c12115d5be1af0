package api_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestRefusals shows the errors of addresses that cannot be used. The tests of the API show the
// sockets.
func TestRefusals(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer used.Close()
	for addr, want := range map[string]string{
		used.Addr().String(): "another process listens there",
		"192.0.2.1:0":        "this machine does not have it",
		api.UnixPrefix + filepath.Join(t.TempDir(), "no", "api.sock"): "cannot be created",
	} {
		_, err := api.Listen(t.Context(), addr)
		must.Fail(t, err, want)
	}
}
