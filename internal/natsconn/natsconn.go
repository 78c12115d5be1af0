// Package natsconn has the parts of a connection to NATS that the sink kind nats and the fleet
// share: the checks of its configuration, and its options.
package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Settings are the settings of a connection.
type Settings struct {
	Servers     []string
	Credentials *config.NATSCredentials
	TLS         *tlsfiles.Config
	Key         string // the key of the credentials, for errors: auth
}

// Of returns the settings of the section `nats` of a fleet.
func Of(c *config.NATS) Settings {
	return Settings{c.Servers, &c.Credentials, (*tlsfiles.Config)(&c.TLS), "credentials"}
}

// Check returns the mistakes in the URLs of the servers, whose list is n.
func (s Settings) Check(n config.Node) (problems config.Problems) {
	for i, server := range n.Items() {
		if i >= len(s.Servers) {
			break
		}
		if reason := s.badServer(s.Servers[i]); reason != "" {
			problems = append(problems, server.Problemf("%s", reason))
		}
	}
	return problems
}

// badServer returns the mistake in the URL of a server. It does not quote the URL, which may
// contain a password.
func (s Settings) badServer(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "must be like nats://host:4222 or tls://host:4222"
	case u.User != nil:
		return "has a user or password: write them below " + s.Key + ", where they can be out of files"
	}
	return ""
}

// Warn reports credentials that are used without encryption. n is the list of servers. A server
// with nats:// may require TLS, which the configuration does not show. The seed of an NKey, also
// one in creds, never leaves the router. But another host on the network path can pass the signed
// nonce on, and take the connection over.
func (s Settings) Warn(n config.Node) (problems config.Problems) {
	what, remedy := "the token or password goes", "write tls://"
	switch c := s.Credentials; {
	case !s.TLS.IsZero():
		return nil
	case !c.NKey.IsZero(), !c.Creds.IsZero():
		what = "the connection that nkey or creds open goes"
		remedy += ", or others can take the connection over: these credentials protect their seed only"
	case c.Token.IsZero() && c.Password.IsZero():
		return nil
	}
	for i, server := range n.Items() {
		if u, err := url.Parse(s.Servers[i]); err == nil && u.Scheme == "nats" {
			problems = append(problems, plugins.Plaintext(server, what, u.Hostname(), remedy)...)
		}
	}
	return problems
}

// Options returns the options for the credentials and TLS. It reads all files, and its error names
// the key of an unusable one, never a content. nats.go reads changed files again before each
// connection; while a file is unusable, the connection is refused.
func (s Settings) Options() ([]nats.Option, error) {
	var options []nats.Option
	encrypted := !s.TLS.IsZero()
	for _, server := range s.Servers {
		encrypted = encrypted || strings.HasPrefix(server, "tls://")
	}
	if encrypted {
		settings, err := s.TLS.Load()
		if err != nil {
			return nil, err
		}
		options = append(options, nats.Secure(settings), nats.ClientTLSConfig(s.certificate(), s.roots))
	}
	who, err := s.identity()
	if err != nil {
		return nil, err
	}
	if who != nil {
		options = append(options, who)
	}
	return options, nil
}

// Explain adds the cause and a remedy to the error of a connection; nil stays nil. prefix precedes
// the keys of the settings in messages.
func (s Settings) Explain(prefix string, err error) error {
	where := prefix + s.Key
	if s.Credentials == nil || *s.Credentials == (config.NATSCredentials{}) {
		where += ", which is empty"
	}
	text := ""
	if err != nil {
		text = strings.ToLower(err.Error())
	}
	switch {
	case strings.Contains(text, "expired"):
		return fmt.Errorf("%w: renew the credentials (%s): changed files are read at the next attempt", err, where)
	case strings.Contains(text, "revoked"):
		return fmt.Errorf("%w: the servers revoked the credentials (%s): write new ones: changed files are read at the next attempt", err, where)
	case refusal(text) && s.expired() != "":
		return fmt.Errorf("%w: the credentials (%s) have expired at %s: renew them: changed files are read at the next attempt", err, where, s.expired())
	case refusal(text):
		return fmt.Errorf("%w: the servers do not know the user, or its secret (%s): changed files are read at the next attempt", err, where)
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls: "):
		return fmt.Errorf("%w: check the certificates of the servers and %stls: changed files are read at the next attempt", err, prefix)
	}
	return err
}

// refusal reports whether the servers do not accept the credentials.
func refusal(text string) bool {
	return strings.Contains(text, "authorization violation") || strings.Contains(text, "authentication")
}

// expired returns the time at which the creds have expired; empty: they have not, or there are
// none. Servers say it only while a connection is open, and later refuse the user without a reason.
func (s Settings) expired() string {
	if s.Credentials == nil || s.Credentials.Creds.IsZero() {
		return ""
	}
	token, _, err := s.creds()
	if err != nil {
		return ""
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Expires int64 `json:"exp"` // in seconds; 0: never
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expires == 0 {
		return ""
	}
	if end := time.Unix(claims.Expires, 0); !time.Now().Before(end) {
		return end.UTC().Format(time.RFC3339)
	}
	return ""
}

// certificate returns the function that reads the router's certificate; nil: there is none.
func (s Settings) certificate() func() (tls.Certificate, error) {
	if s.TLS.Cert.IsZero() {
		return nil
	}
	return s.TLS.Own
}

func (s Settings) roots() (*x509.CertPool, error) { return s.TLS.Roots() }

// identity returns the option for the credentials; nil: there are none.
func (s Settings) identity() (nats.Option, error) {
	c := s.Credentials
	switch {
	case !c.Creds.IsZero():
		if _, _, err := s.creds(); err != nil {
			return nil, err
		}
		return nats.UserJWT(
			func() (string, error) { token, _, err := s.creds(); return token, err },
			func(nonce []byte) ([]byte, error) {
				_, pair, err := s.creds()
				if err != nil {
					return nil, err
				}
				return pair.Sign(nonce)
			}), nil
	case !c.NKey.IsZero():
		return s.nkey()
	case !c.Token.IsZero():
		if _, err := s.read("token", c.Token); err != nil {
			return nil, err
		}
		return nats.TokenHandler(func() string { token, _ := c.Token.Value(); return token }), nil
	case c.User != "":
		if _, err := s.read("password", c.Password); err != nil {
			return nil, err
		}
		return nats.UserInfoHandler(func() (user, password string) { password, _ = c.Password.Value(); return c.User, password }), nil
	}
	return nil, nil
}

func (s Settings) read(key string, secret config.Secret) (string, error) {
	text, err := secret.Value()
	if err != nil {
		return "", fmt.Errorf("%s.%s: %w", s.Key, key, err)
	}
	return text, nil
}

// creds returns the token and the key pair of a .creds file.
func (s Settings) creds() (token string, pair nkeys.KeyPair, err error) {
	text, err := s.read("creds", s.Credentials.Creds)
	if err != nil {
		return "", nil, err
	}
	if token, err = nkeys.ParseDecoratedJWT([]byte(text)); err == nil {
		pair, err = nkeys.ParseDecoratedUserNKey([]byte(text))
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s.creds: not the content of a .creds file", s.Key)
	}
	return token, pair, nil
}

// nkey returns the option for an NKey. The public key of a connection does not change.
func (s Settings) nkey() (nats.Option, error) {
	seed, err := s.read("nkey", s.Credentials.NKey)
	if err != nil {
		return nil, err
	}
	bad := errors.New(s.Key + ".nkey: not the seed of an NKey, which begins with SU")
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(seed)))
	if err != nil {
		return nil, bad
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, bad
	}
	return nats.Nkey(public, pair.Sign), nil
}
