package otlp_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/deltarouter/deltarouter/pkg/plugins/otlp"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestTLS: the receiver's certificate is checked, by a delivery as by a probe, and who vouches for it is read anew.
func TestTLS(t *testing.T) {
	r := &receiver{}
	s := httptest.NewTLSServer(r)
	t.Cleanup(s.Close)
	at, _ := serveGRPC(t, r, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&s.TLS.Certificates[0])))
	cert := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	for protocol, url := range map[string]string{"grpc": "https://" + at, "http": s.URL} {
		t.Run(protocol, func(t *testing.T) {
			ca := filepath.Join(t.TempDir(), "ca")
			config := fmt.Sprintf("{endpoint: %q, protocol: %s, tls: {ca: {file: %q}}}", url, protocol, ca)
			nobody := fmt.Sprintf("{endpoint: %q, protocol: %s}", url, protocol)
			sink := open(t, config)
			for _, test := range []struct{ content, want string }{{"", "tls.ca: read secret"}, {"s3cret", "tls.ca: no PEM"}, {cert, ""}} {
				if test.content != "" {
					if err := os.WriteFile(ca, []byte(test.content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				errs := sink.Write(t.Context(), sinktest.Events(t, "web", 1, 10))
				fits := func() bool {
					return test.want == "" && errs == nil || errs != nil && test.want != "" && strings.Contains(errs[0].Error(), test.want)
				}
				for try := 0; !fits() && try < 20; try++ { // gRPC tells how the last connection failed, not this one
					errs = sink.Write(t.Context(), sinktest.Events(t, "web", 1, 10))
				}
				if test.want == "" && errs != nil || test.want != "" && (sinktest.Verdicts(1, errs) != "u" || !strings.Contains(errs[0].Error(), test.want)) {
					t.Errorf("got %v, want %q", errs, test.want)
				}
				if err := otlp.Factory().Probe(t.Context(), plugintest.Node(t, config)); (err == nil) != (test.want == "") {
					t.Errorf("the probe says %v", err)
				}
			}
			errs := open(t, nobody).Write(t.Context(), sinktest.Events(t, "web", 1, 10))
			if sinktest.Verdicts(1, errs) != "u" || !strings.Contains(errs[0].Error(), "unknown authority") {
				t.Errorf("got %v", errs)
			}
		})
	}
	if n := len(r.ids()); n != 2 {
		t.Errorf("%d records", n)
	}
}
