package nats_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// encrypted starts a server that asks for certificates of clients, and returns its tls:// URL.
func encrypted(t *testing.T, settings *tls.Config) (s *server.Server, url string) {
	t.Helper()
	s = serve(t, func(o *server.Options) { o.TLSConfig, o.TLSTimeout = settings, 20 })
	return s, "tls://" + s.Addr().String()
}

// TestTLS: the server's certificate is checked, the router shows its own, and files are read anew for each connection.
func TestTLS(t *testing.T) {
	a, other := sinktest.NewAuthority(t), sinktest.NewAuthority(t)
	s, url := encrypted(t, a.Server(time.Hour, a))
	st := stream(t, admin(t, s, client.Secure(a.Client())), jetstream.StreamConfig{})
	_, expired := encrypted(t, a.Server(-time.Hour, a))
	all, ca := sinktest.Events(t, "web", 2, 20), sinktest.File(t, "ca", a.PEM)
	for _, test := range []struct{ name, url, tls, want string }{
		{"nobody vouches", url, "{" + a.Files() + "}", "certificate signed by unknown authority"},
		{"another name", url, fmt.Sprintf("{ca: {file: %q}, serverName: elsewhere, %s}", ca, a.Files()), "match elsewhere"},
		{"no own", url, fmt.Sprintf("{ca: {file: %q}}", ca), "tls"},
		{"a certificate of another authority", url, fmt.Sprintf("{ca: {file: %q}, %s}", ca, other.Files()), "tls"},
		{"no PEM", url, fmt.Sprintf("{ca: {file: %q}}", sinktest.File(t, "ca", "s3cret")), "tls.ca: no PEM certificate"},
		{"expired", expired, fmt.Sprintf("{ca: {file: %q}, %s}", ca, a.Files()), "expired"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := fmt.Sprintf("{servers: %q, tls: %s}", test.url, test.tls)
			errs := open(t, config).Write(t.Context(), all)
			if sinktest.Verdicts(2, errs) != "uu" || !strings.Contains(errs[0].Error(), test.want) || strings.Contains(errs[0].Error(), "s3cret") {
				t.Errorf("got %v, want %q", errs, test.want)
			}
			if err := nats.Factory().Probe(t.Context(), plugintest.Node(t, config)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the probe says %v, want %q", err, test.want)
			}
		})
	}
	mended := sinktest.File(t, "ca", other.PEM)
	sink := open(t, fmt.Sprintf("{servers: %q, tls: {ca: {file: %q}, %s}}", url, mended, a.Files()))
	if errs := sink.Write(t.Context(), all); sinktest.Verdicts(2, errs) != "uu" {
		t.Fatalf("got %v", errs)
	}
	sinktest.Write(t, mended, a.PEM+"\n")
	if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 2 {
		t.Errorf("got %v", errs)
	}
}
