package natsconn_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltarouter/deltarouter/internal/natsconn"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience limits the wait of a test. A successful test does not wait so long.
const patience = time.Minute

// settings returns the settings of a section nats.
func settings(t *testing.T, text string) natsconn.Settings {
	t.Helper()
	n, problems := config.ParseNode("test.yaml", []byte(text))
	var c config.NATS
	if problems = append(problems, n.Decode(&c)...); len(problems) > 0 {
		t.Fatal(problems)
	}
	return natsconn.Of(&c)
}

// connect connects with further options that reconnect at once and for ever.
func connect(t *testing.T, s natsconn.Settings, more ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	options, err := s.Options()
	must.Succeed(t, err)
	closed := make(chan struct{})
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0), nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	conn, err := nats.Connect(strings.Join(s.Servers, ","), append(options, more...)...)
	if err == nil {
		t.Cleanup(func() {
			conn.Close()
			<-closed
		})
	}
	return conn, err
}

// write replaces a file atomically.
func write(t *testing.T, file, text string) {
	t.Helper()
	must.Succeed(t, errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file)))
}

// TestRevoked: the user of an open connection is removed from the server. The connection is refused
// with a reason, and works again when the file of its secret has that of a user that the server
// knows, without a restart.
func TestRevoked(t *testing.T) {
	for _, test := range []struct {
		name, credentials string
		user              func(secret string) (*server.Options, string) // options, and the content of the file
	}{
		{"password", "{user: router, password: {file: FILE}}", func(secret string) (*server.Options, string) {
			return &server.Options{Users: []*server.User{{Username: "router", Password: secret}}}, secret + "\n"
		}},
		{"token", "{token: {file: FILE}}", func(secret string) (*server.Options, string) {
			return &server.Options{Authorization: secret}, secret
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "secret")
			options, content := test.user("first-secret")
			s := embedded.Start(t, func(o *server.Options) { o.Users, o.Authorization = options.Users, options.Authorization })
			write(t, file, content)
			config := settings(t, "{servers: ["+s.ClientURL()+"], credentials: "+strings.Replace(test.credentials, "FILE", file, 1)+"}")
			refused := make(chan error, 100)
			conn, err := connect(t, config, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				select {
				case refused <- err:
				default:
				}
			}))
			must.Succeed(t, err)
			options, content = test.user("second-secret")
			options.Host, options.Port, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
			must.Succeed(t, s.ReloadOptions(options))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			select {
			case err := <-refused:
				must.Fail(t, config.Explain("fleet.nats.", err), "the servers do not know the user, or its secret (fleet.nats.credentials): changed files are read")
			case <-ctx.Done():
				t.Fatal("the connection is not refused")
			}
			write(t, file, content)
			sinktest.Until(t, "the connection works again", conn.IsConnected)
		})
	}
}

// TestNKey: an unusable file is an error that names the key, never its content.
func TestNKey(t *testing.T) {
	pair, err := nkeys.CreateUser()
	must.Succeed(t, err)
	public, err := pair.PublicKey()
	must.Succeed(t, err)
	seed, err := pair.Seed()
	must.Succeed(t, err)
	s := embedded.Start(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	file := filepath.Join(t.TempDir(), "seed")
	config := settings(t, "{servers: ["+s.ClientURL()+"], credentials: {nkey: {file: "+file+"}}}")
	_, err = config.Options()
	must.Fail(t, err, "credentials.nkey: secret file "+file+" cannot be read")
	write(t, file, "SUSPICIOUS")
	if _, err = config.Options(); err == nil || strings.Contains(err.Error(), "SUSPICIOUS") {
		t.Errorf("got %v", err)
	}
	must.Fail(t, err, "credentials.nkey: not the seed of an NKey")
	write(t, file, string(seed)+"\n")
	_, err = connect(t, config)
	must.Succeed(t, err)
}

// TestTLS: a server with a certificate of an unknown authority is refused with a remedy.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it has a certificate of its own for 127.0.0.1
	certificate, authority := web.TLS.Certificates[0], filepath.Join(t.TempDir(), "ca.crt")
	web.Close()
	write(t, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})))
	s := embedded.Start(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	})
	url := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	trusting := settings(t, "{servers: ["+url+"], tls: {ca: {file: "+authority+"}}}")
	_, err := connect(t, trusting)
	must.Succeed(t, err)
	other := settings(t, "{servers: ["+url+"]}")
	_, err = connect(t, other)
	must.Fail(t, other.Explain("fleet.nats.", err), "check the certificates of the servers and fleet.nats.tls")
}

func TestExplain(t *testing.T) {
	s := settings(t, "{servers: [nats://n:4222]}")
	if err := s.Explain("", nil); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{nats.ErrAuthExpired, "renew the credentials (credentials, which is empty)"},
		{nats.ErrAuthRevoked, "the servers revoked the credentials"},
		{nats.ErrAuthorization, "the servers do not know the user, or its secret"},
		{nats.ErrNoServers, "nats: no servers available for connection"},
	} {
		must.Fail(t, s.Explain("", test.err), test.want)
		if !errors.Is(s.Explain("", test.err), test.err) {
			t.Error("the cause is lost")
		}
	}
}

// TestExpired: a server that refuses a user does not say that the credentials have expired.
func TestExpired(t *testing.T) {
	account, err := nkeys.CreateAccount()
	must.Succeed(t, err)
	user, err := nkeys.CreateUser()
	must.Succeed(t, err)
	public, err := user.PublicKey()
	must.Succeed(t, err)
	seed, err := user.Seed()
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "creds")
	s := settings(t, "{servers: [nats://n:4222], credentials: {creds: {file: "+file+"}}}")
	for _, test := range []struct {
		expires int64
		want    string
	}{
		{1_000_000_000, "the credentials (fleet.nats.credentials) have expired at 2001-09-09T01:46:40Z: renew them"},
		{100_000_000_000, "the servers do not know the user, or its secret (fleet.nats.credentials)"},
		{0, "the servers do not know the user, or its secret (fleet.nats.credentials)"},
	} {
		claims := jwt.NewUserClaims(public)
		claims.Expires = test.expires
		token, err := claims.Encode(account)
		must.Succeed(t, err)
		creds, err := jwt.FormatUserConfig(token, seed)
		must.Succeed(t, err)
		write(t, file, string(creds))
		must.Fail(t, s.Explain("fleet.nats.", nats.ErrAuthorization), test.want)
	}
	write(t, file, "damaged")
	must.Fail(t, s.Explain("fleet.nats.", nats.ErrAuthorization), "the servers do not know the user")
}
