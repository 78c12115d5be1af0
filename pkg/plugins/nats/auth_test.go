package nats_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// keys makes a key pair.
func keys(t *testing.T, fresh func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public, string(text)
}

// TestAuth: each way to say who one is works, and a secret that is mended is used by the next connection.
func TestAuth(t *testing.T) {
	_, public, seed := keys(t, nkeys.CreateUser)
	for name, test := range map[string]struct {
		server func(*server.Options)
		config string // %s is the file
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
			s := serve(t, test.server)
			st := stream(t, admin(t, s, test.admin), jetstream.StreamConfig{})
			secret := sinktest.File(t, "secret", test.wrong)
			sink := open(t, fmt.Sprintf("{servers: %q, auth: %s}", s.ClientURL(), fmt.Sprintf(test.config, secret)))
			all := sinktest.Events(t, "web", 2, 20)
			errs := sink.Write(t.Context(), all)
			if v := sinktest.Verdicts(2, errs); v != "uu" || strings.Contains(errs[0].Error(), "s3cret") {
				t.Fatalf("got %s: %v", v, errs)
			}
			if err := os.Remove(secret); err != nil {
				t.Fatal(err)
			}
			if errs := sink.Write(t.Context(), all); sinktest.Verdicts(2, errs) != "uu" || !strings.Contains(errs[0].Error(), "read secret") {
				t.Fatalf("got %v", errs)
			}
			if err := os.WriteFile(secret, []byte(test.right+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 2 {
				t.Errorf("got %v", errs)
			}
		})
	}
}

// TestCreds: a .creds file, as nsc and NGS give them.
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
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	_, systemKey, _ := keys(t, nkeys.CreateAccount)
	accounts, claims := &server.MemAccResolver{}, jwt.NewAccountClaims(accountKey)
	claims.Limits.DiskStorage, claims.Limits.MemoryStorage = jwt.NoLimit, jwt.NoLimit
	for key, claims := range map[string]*jwt.AccountClaims{accountKey: claims, systemKey: jwt.NewAccountClaims(systemKey)} {
		if err := accounts.Store(key, token(claims, operator)); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, func(o *server.Options) {
		o.TrustedOperators = []*jwt.OperatorClaims{jwt.NewOperatorClaims(operatorKey)}
		o.AccountResolver, o.SystemAccount = accounts, systemKey
	})
	user := jwt.NewUserClaims(userKey)
	creds, err := jwt.FormatUserConfig(token(user, account), []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	secret := sinktest.File(t, "router.creds", string(creds))
	config := fmt.Sprintf("{servers: %q, auth: {creds: {file: %q}}}", s.ClientURL(), secret)
	st := stream(t, admin(t, s, client.UserCredentialBytes(creds)), jetstream.StreamConfig{})
	if errs := open(t, config).Write(t.Context(), sinktest.Events(t, "web", 2, 20)); errs != nil || len(kept(t, st)) != 2 {
		t.Errorf("got %v", errs)
	}
	if err := nats.Factory().Probe(t.Context(), plugintest.Node(t, config)); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"s3cret", token(user, account)} {
		if err := os.WriteFile(secret, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := nats.Factory().Probe(t.Context(), plugintest.Node(t, config)); err == nil || !strings.Contains(err.Error(), "not the content of a .creds file") {
			t.Error(err)
		}
		sinktest.Complains(t, open(t, config), sinktest.Events(t, "web", 2, 20), "not the content of a .creds file")
	}
}

// TestPermission: that the router may not publish is said, although the server answers nothing to the message itself.
func TestPermission(t *testing.T) {
	s := serve(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "router", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"k8s.>"}}}}}
	})
	sink := open(t, fmt.Sprintf("{servers: %q, auth: {user: router, password: p}, timeout: 200ms}", s.ClientURL()))
	errs := sink.Write(t.Context(), sinktest.Events(t, "web", 1, 20))
	if v := sinktest.Verdicts(1, errs); v != "u" || !strings.Contains(strings.ToLower(errs[0].Error()), "permissions violation") {
		t.Errorf("got %s: %v", v, errs)
	}
}

// TestProbe: it connects and publishes nothing, and says what is missing.
func TestProbe(t *testing.T) {
	s := serve(t, func(o *server.Options) { o.Username, o.Password = "router", "s3cret" })
	st := stream(t, admin(t, s, client.UserInfo("router", "s3cret")), jetstream.StreamConfig{})
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
			err := nats.Factory().Probe(t.Context(), plugintest.Node(t, fmt.Sprintf(test.config, url)))
			if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if n := len(kept(t, st)); n != 0 {
		t.Errorf("%d messages were published", n)
	}
	stop(s)
	if err := nats.Factory().Probe(t.Context(), plugintest.Node(t, "servers: "+url)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}
