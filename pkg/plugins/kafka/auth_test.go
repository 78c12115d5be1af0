package kafka_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	pluginconfig "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kafka"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// admitted authenticates a client independent of the sink's mechanism.
func admitted() kgo.Opt { return kgo.SASL(plain.Auth{User: "reader", Pass: "r"}.AsMechanism()) }

// TestSASL: with each mechanism a wrong password makes the sink unavailable and is not shown. The
// next connection uses the corrected password.
func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "reader", "r"), kfake.Superuser(strings.ToUpper(mechanism), "router", "s3cret"))
			secret := sinktest.File(t, "password", "s3cret-0ld")
			more := fmt.Sprintf(", sasl: {mechanism: %s, user: router, password: {file: %q}}", mechanism, secret)
			sink, all := open(t, c, ", timeout: 500ms"+more), sinktest.Events(t, "web", 3, 20)
			// a fake ends the connection, a real broker sends the reason
			for _, want := range []string{"EOF", "sasl.password: secret file"} {
				sinktest.Complains(t, sink, all, want)
				err := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more)))
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the probe says %v", err)
				}
				if want == "EOF" {
					must.Succeed(t, os.Remove(secret))
				}
			}
			sinktest.Write(t, secret, "s3cret\n")
			sinktest.Insist(t, sink, all)
			if err := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more))); err != nil {
				t.Errorf("the probe says %v", err)
			}
			consume(t, c, 3, admitted())
		})
	}
}

// TestDenied: the error contains the reason why Kafka rejects the login or the write.
func TestDenied(t *testing.T) {
	c, all := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "router", "s3cret")), sinktest.Events(t, "web", 2, 20)
	says := "Authentication failed: Invalid username or password"
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &says
		return answer, nil, true
	})
	more := ", sasl: {mechanism: plain, user: router, password: s3cret}"
	sinktest.Complains(t, open(t, c, ", timeout: 500ms"+more), all, "SASL_AUTHENTICATION_FAILED")
	must.Fail(t, kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more))), "SASL_AUTHENTICATION_FAILED")

	mute := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "router", "s3cret"))
	sinktest.Complains(t, open(t, mute, ", timeout: 500ms"+more), all, "AUTHORIZATION_FAILED")
}

// TestEchoedPassword: no error contains the password, even if the broker repeats it.
func TestEchoedPassword(t *testing.T) {
	// Guarantee: answers-leak
	c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "router", "s3cret"))
	says := `Authentication failed: "s3cret-pa55word" is wrong`
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		answer := request.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &says
		return answer, nil, true
	})
	more := ", sasl: {mechanism: plain, user: router, password: s3cret-pa55word}"
	errs := open(t, c, ", timeout: 500ms"+more).Write(t.Context(), sinktest.Events(t, "web", 1, 20))
	probed := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more)))
	for _, err := range append(errs, probed) {
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") {
			t.Errorf("got %v", err)
		}
	}
}

// TestTLS: the sink verifies the brokers' certificate, presents its own, and reads the files again
// for each connection.
func TestTLS(t *testing.T) {
	// Guarantee: certificate-renewal
	a, other := sinktest.NewAuthority(t), sinktest.NewAuthority(t)
	c := fake(t, kfake.TLS(a.Server(time.Hour, a)))
	expired := fake(t, kfake.TLS(a.Server(-time.Hour, a)))
	all, ca := sinktest.Events(t, "web", 2, 20), sinktest.File(t, "ca", a.PEM)
	for _, test := range []struct {
		name string
		at   *kfake.Cluster
		tls  string
		want string
	}{
		{"no TLS", c, "", "is TLS missing?"},
		{"nobody vouches", c, ", tls: {" + a.Files() + "}", "certificate signed by unknown authority"},
		{"another authority", c, fmt.Sprintf(", tls: {ca: {file: %q}, %s}", sinktest.File(t, "ca", other.PEM), a.Files()), "certificate signed by unknown authority"},
		{"another name", c, fmt.Sprintf(", tls: {ca: {file: %q}, serverName: elsewhere, %s}", ca, a.Files()), "match elsewhere"},
		{"no own", c, fmt.Sprintf(", tls: {ca: {file: %q}}", ca), "certificate required"},
		{"its own of another authority", c, fmt.Sprintf(", tls: {ca: {file: %q}, %s}", ca, other.Files()), "tls: "},
		{"no PEM", c, fmt.Sprintf(", tls: {ca: {file: %q}}", sinktest.File(t, "ca", "s3cret")), "tls.ca: no PEM certificate"},
		{"expired", expired, fmt.Sprintf(", tls: {ca: {file: %q}, %s}", ca, a.Files()), "expired"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sinktest.Complains(t, open(t, test.at, ", timeout: 500ms"+test.tls), all, test.want)
			must.Fail(t, kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(test.at.ListenAddrs()[0], test.tls))), test.want)
		})
	}
	mended := sinktest.File(t, "ca", other.PEM)
	more := fmt.Sprintf(", tls: {ca: {file: %q}, %s}", mended, a.Files())
	sink := open(t, c, ", timeout: 500ms"+more)
	sinktest.Complains(t, sink, all, "unknown authority")
	sinktest.Write(t, mended, a.PEM)
	sinktest.Insist(t, sink, all)
	if err := kafka.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more))); err != nil {
		t.Errorf("the probe says %v", err)
	}
	consume(t, c, 2, kgo.DialTLSConfig(a.Client()))
}

// TestMaxEvent: the largest event is the smaller one of the sink's and the topic's.
func TestMaxEvent(t *testing.T) {
	c := fake(t)
	kind := kafka.Kind().(interface {
		MaxEvent(ctx context.Context, node pluginconfig.Node) (int64, string, error)
	})
	most := func(more string) int64 {
		t.Helper()
		most, _, err := kind.MaxEvent(t.Context(), plugintest.Node(t, sinkYAML(c.ListenAddrs()[0], more)))
		must.Succeed(t, err)
		return most
	}
	if got := most(""); got != 1000000 {
		t.Errorf("the default of the sink: %d", got)
	}
	if got := most(", maxBytes: 4Mi"); got >= 4<<20 || got < 1000000 {
		t.Errorf("the default of the topic: %d", got)
	}
}
