package nats_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	pluginconfig "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// keys returns a key pair.
func keys(t *testing.T, fresh func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := fresh()
	must.Succeed(t, err)
	public, err = pair.PublicKey()
	must.Succeed(t, err)
	text, err := pair.Seed()
	must.Succeed(t, err)
	return pair, public, string(text)
}

// TestAuth: each kind of credentials works, and the next connection uses a corrected secret.
func TestAuth(t *testing.T) {
	_, public, seed := keys(t, nkeys.CreateUser)
	for name, test := range map[string]struct {
		server func(*server.Options)
		config string // %s is replaced by the file
		wrong  string
		right  string
		admin  client.Option
	}{
		"password": {
			func(o *server.Options) { o.Username, o.Password = "router", "s3cret" },
			"{user: router, password: {file: %q}}", "s3cret-0ld", "s3cret", client.UserInfo("router", "s3cret"),
		},
		"token": {
			func(o *server.Options) { o.Authorization = "s3cret" },
			"{token: {file: %q}}", "s3cret-0ld", "s3cret", client.Token("s3cret"),
		},
		"nkey": {
			func(o *server.Options) {
				o.Nkeys = []*server.NkeyUser{{Nkey: public}}
				o.Users = []*server.User{{Username: "admin", Password: "a"}}
			},
			"{nkey: {file: %q}}", "s3cret-0ld", seed, client.UserInfo("admin", "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := embedded.Start(t, test.server)
			st := stream(t, embedded.JetStream(t, s, test.admin), jetstream.StreamConfig{})
			secret := sinktest.File(t, "secret", test.wrong)
			sink := open(t, fmt.Sprintf("{servers: %q, auth: %s}", s.ClientURL(), fmt.Sprintf(test.config, secret)))
			all := sinktest.Events(t, "web", 2, 20)
			errs := sink.Write(t.Context(), all)
			if v := sinktest.Verdicts(2, errs); v != "uu" || strings.Contains(errs[0].Error(), "s3cret") {
				t.Fatalf("got %s: %v", v, errs)
			}
			must.Succeed(t, os.Remove(secret))
			if errs := sink.Write(t.Context(), all); sinktest.Verdicts(2, errs) != "uu" || !strings.Contains(errs[0].Error(), "secret file") {
				t.Fatalf("got %v", errs)
			}
			must.Succeed(t, os.WriteFile(secret, []byte(test.right+"\n"), 0o600))
			if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 2 {
				t.Errorf("got %v", errs)
			}
		})
	}
}

// TestCreds: .creds files of nsc and NGS.
func TestCreds(t *testing.T) {
	operator, operatorKey, _ := keys(t, nkeys.CreateOperator)
	account, accountKey, _ := keys(t, nkeys.CreateAccount)
	_, userKey, seed := keys(t, nkeys.CreateUser)
	token := func(claims interface {
		Encode(nkeys.KeyPair) (string, error)
	}, signer nkeys.KeyPair,
	) string {
		t.Helper()
		text, err := claims.Encode(signer)
		must.Succeed(t, err)
		return text
	}
	_, systemKey, _ := keys(t, nkeys.CreateAccount)
	accounts, claims := &server.MemAccResolver{}, jwt.NewAccountClaims(accountKey)
	claims.Limits.DiskStorage, claims.Limits.MemoryStorage = jwt.NoLimit, jwt.NoLimit
	for key, claims := range map[string]*jwt.AccountClaims{accountKey: claims, systemKey: jwt.NewAccountClaims(systemKey)} {
		must.Succeed(t, accounts.Store(key, token(claims, operator)))
	}
	s := embedded.Start(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{jwt.NewOperatorClaims(operatorKey)}
		o.AccountResolver, o.SystemAccount = accounts, systemKey
	})
	user := jwt.NewUserClaims(userKey)
	creds, err := jwt.FormatUserConfig(token(user, account), []byte(seed))
	must.Succeed(t, err)
	secret := sinktest.File(t, "router.creds", string(creds))
	config := fmt.Sprintf("{servers: %q, auth: {creds: {file: %q}}}", s.ClientURL(), secret)
	st := stream(t, embedded.JetStream(t, s, client.UserCredentialBytes(creds)), jetstream.StreamConfig{})
	if errs := open(t, config).Write(t.Context(), sinktest.Events(t, "web", 2, 20)); errs != nil || len(kept(t, st)) != 2 {
		t.Errorf("got %v", errs)
	}
	must.Report(t, nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)))
	for _, bad := range []string{"s3cret", token(user, account)} {
		must.Succeed(t, os.WriteFile(secret, []byte(bad), 0o600))
		must.Fail(t, nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)), "not the content of a .creds file")
		sinktest.Complains(t, open(t, config), sinktest.Events(t, "web", 2, 20), "not the content of a .creds file")
	}
}

// TestPermission: the error says that the router may not publish, although the server does not
// answer the message itself.
func TestPermission(t *testing.T) {
	s := embedded.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "router", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"k8s.>"}}}}}
	})
	sink := open(t, fmt.Sprintf("{servers: %q, auth: {user: router, password: p}, timeout: 2s}", s.ClientURL()))
	errs := sink.Write(t.Context(), sinktest.Events(t, "web", 1, 20))
	if v := sinktest.Verdicts(1, errs); v != "u" || !strings.Contains(strings.ToLower(errs[0].Error()), "permissions violation") {
		t.Errorf("got %s: %v", v, errs)
	}
}

// TestProbe: a probe connects and publishes nothing. Its error names the missing part.
func TestProbe(t *testing.T) {
	s := embedded.Start(t, func(o *server.Options) { o.Username, o.Password = "router", "s3cret" })
	st := stream(t, embedded.JetStream(t, s, client.UserInfo("router", "s3cret")), jetstream.StreamConfig{})
	url := s.ClientURL()
	for _, test := range []struct{ name, config, want string }{
		{"there", "{servers: %q, auth: {user: router, password: s3cret}}", ""},
		{"with its stream", "{servers: %q, auth: {user: router, password: s3cret}, stream: {name: k8s}}", ""},
		{"with a stream that will be made", "{servers: %q, auth: {user: router, password: s3cret}, stream: {name: x, create: true}}", ""},
		{"no stream", "{servers: %q, auth: {user: router, password: s3cret}, stream: {name: x}}", "stream x: "},
		{"nobody", "{servers: %q}", "Authorization Violation"},
		{"no secret", "{servers: %q, auth: {token: {env: NO_SUCH_VARIABLE}}}", "auth.token: "},
		{"no certificate", "{servers: %q, tls: {ca: {file: /none}}}", "tls.ca: "},
		{"no TLS", "{servers: %q, tls: {serverName: x}}", "secure"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, fmt.Sprintf(test.config, url)))
			if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if n := len(kept(t, st)); n != 0 {
		t.Errorf("%d messages were published", n)
	}
	embedded.Stop(s)
	must.Fail(t, nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, "servers: "+url)), "refused")
}

// encrypted starts a server that requires client certificates, and returns its tls:// URL.
func encrypted(t *testing.T, settings *tls.Config) (s *server.Server, url string) {
	t.Helper()
	s = embedded.Start(t, func(o *server.Options) { o.TLSConfig, o.TLSTimeout = settings, 20 })
	return s, "tls://" + s.Addr().String()
}

// TestTLS: the sink verifies the server's certificate, presents its own, and reads the files again
// for each connection.
func TestTLS(t *testing.T) {
	// Guarantee: certificate-renewal
	a, other := sinktest.NewAuthority(t), sinktest.NewAuthority(t)
	s, url := encrypted(t, a.Server(time.Hour, a))
	st := stream(t, embedded.JetStream(t, s, client.Secure(a.Client())), jetstream.StreamConfig{})
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
			must.Fail(t, nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)), test.want)
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

// TestMaxEvent: the largest event is that of the server, or of the stream if it takes less.
func TestMaxEvent(t *testing.T) {
	s := embedded.Start(t, func(o *server.Options) { o.MaxPayload = 2 << 20 })
	stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{MaxMsgSize: 1000})
	for _, test := range []struct {
		config, setting string
		most            int64
	}{
		{"{servers: %q}", "max_payload of the server", 2 << 20},
		{"{servers: %q, stream: {name: k8s}}", "the maximum message size of the stream", 1000},
		{"{servers: %q, stream: {name: other, create: true}}", "max_payload of the server", 2 << 20},
	} {
		kind := nats.Kind().(interface {
			MaxEvent(ctx context.Context, node pluginconfig.Node) (int64, string, error)
		})
		most, setting, err := kind.MaxEvent(t.Context(), plugintest.Node(t, fmt.Sprintf(test.config, s.ClientURL())))
		if must.Succeed(t, err); most != test.most || setting != test.setting {
			t.Errorf("%s: %d, %s", test.config, most, setting)
		}
	}
}
