package otlp_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// encrypted serves both protocols with a certificate that is valid for a duration, and requires a
// client certificate. It returns the URLs.
func encrypted(t *testing.T, r *receiver, a *sinktest.Authority, last time.Duration) (urls map[string]string) {
	t.Helper()
	at, _ := serveGRPC(t, r, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(a.Server(last, a))))
	s := httptest.NewUnstartedServer(r)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = a.Server(last, a)
	s.StartTLS()
	t.Cleanup(s.Close)
	return map[string]string{"grpc": "https://" + at, "http": s.URL}
}

// TestTLS: a write and a probe verify the receiver's certificate, the router presents its own, and
// the files are read again.
func TestTLS(t *testing.T) {
	// Guarantee: certificate-renewal
	a, other, r := sinktest.NewAuthority(t), sinktest.NewAuthority(t), &receiver{}
	expired, ca := encrypted(t, r, a, -time.Hour), sinktest.File(t, "ca", a.PEM)
	for protocol, url := range encrypted(t, r, a, time.Hour) {
		t.Run(protocol, func(t *testing.T) {
			config := func(url, tls string) string {
				return fmt.Sprintf("{endpoint: %q, protocol: %s, timeout: 20s, tls: {%s}}", url, protocol, tls)
			}
			all := sinktest.Events(t, "web", 1, 10)
			for _, test := range []struct{ name, config, want string }{
				{"nobody vouches", config(url, a.Files()), "unknown authority"},
				{"another authority", config(url, fmt.Sprintf("ca: {file: %q}", sinktest.File(t, "ca", other.PEM))), "unknown authority"},
				{"another name", config(url, fmt.Sprintf("ca: {file: %q}, serverName: elsewhere", ca)), "match elsewhere"},
				{"expired", config(expired[protocol], fmt.Sprintf("ca: {file: %q}, %s", ca, a.Files())), "expired"},
				{"no PEM", config(url, fmt.Sprintf("ca: {file: %q}", sinktest.File(t, "ca", "s3cret"))), "tls.ca: no PEM"},
			} {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					sinktest.Complains(t, open(t, test.config), all, test.want)
					must.Fail(t, otlp.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, test.config)), test.want)
				})
			}
			// The receiver rejects a router without a certificate, or with one of another
			// authority.
			for _, own := range []string{"", ", " + other.Files()} {
				if v := sinktest.Verdicts(1, open(t, config(url, fmt.Sprintf("ca: {file: %q}%s", ca, own))).Write(t.Context(), all)); v != "u" {
					t.Errorf("got %s", v)
				}
			}
			mended := sinktest.File(t, "ca", other.PEM)
			sink := open(t, config(url, fmt.Sprintf("ca: {file: %q}, %s", mended, a.Files())))
			sinktest.Complains(t, sink, all, "unknown authority")
			must.Succeed(t, os.Remove(mended))
			sinktest.Complains(t, sink, all, "tls.ca: secret file")
			sinktest.Write(t, mended, a.PEM)
			sinktest.Insist(t, sink, all)
			// The certificate is for 127.0.0.1 and not for localhost.
			local := strings.Replace(url, "127.0.0.1", "localhost", 1)
			sinktest.Complains(t, open(t, config(local, fmt.Sprintf("ca: {file: %q}, %s", ca, a.Files()))), all, "match localhost")
			sinktest.Insist(t, open(t, config(local, fmt.Sprintf("ca: {file: %q}, serverName: 127.0.0.1, %s", ca, a.Files()))), all)
		})
	}
	if n := len(r.ids()); n != 4 {
		t.Errorf("%d records", n)
	}
}
