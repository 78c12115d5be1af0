package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// TestTransport: the text names the cause and quotes no input; errors.Is still finds the original
// error.
func TestTransport(t *testing.T) {
	// Guarantee: answers-leak
	dial := func(err error) error {
		return &url.Error{Op: "Post", URL: "http://s3cret", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	for want, err := range map[string]error{
		"connection refused":                            dial(syscall.ECONNREFUSED),
		"no route to the host":                          dial(syscall.EHOSTUNREACH),
		"the host name does not exist":                  dial(&net.DNSError{Err: "s3cret", Name: "s3cret", IsNotFound: true}),
		"the host name cannot be resolved":              dial(&net.DNSError{Err: "s3cret", Name: "s3cret", IsTimeout: true}),
		"the connection was closed before the response": fmt.Errorf("s3cret: %w", io.ErrUnexpectedEOF),
		"the response is not HTTP":                      errors.New(`malformed HTTP response "s3cret"`),
		"the connection failed":                         errors.New("s3cret"),
		"the proxy: connection refused":                 &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED},
		"the server speaks HTTP and not HTTPS":          fmt.Errorf("s3cret: %w", http.ErrSchemeMismatch),
		"a header is invalid":                           errors.New(`net/http: invalid header field value for "s3cret"`),
		"the connection was reset":                      &net.OpError{Op: "read", Err: syscall.ECONNRESET},
		"the peer closed the connection: tls: gone":     &net.OpError{Op: "remote error", Err: errors.New("tls: gone")},
	} {
		got := plugins.Transport(err)
		if got.Error() != want || strings.Contains(got.Error(), "s3cret") || !errors.Is(got, err) {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
	if err := plugins.Transport(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
