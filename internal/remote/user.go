package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// user is the identity of a kubeconfig: how the API server is reached, and the credentials.
type user struct {
	cfg       *rest.Config
	namespace string // of the context
	wrappers  *transport.Config
	settings  *tls.Config // nil: no certificate
}

// loadUser reads the kubeconfig as kubectl does. Credential plugins run when they are needed.
func loadUser(o Options) (*user, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context})
	u := &user{}
	var err error
	if u.cfg, err = loader.ClientConfig(); err == nil {
		u.namespace, _, err = loader.Namespace()
	}
	if clientcmd.IsEmptyConfig(err) { // client-go's advice is for kubectl
		err = errors.New("there is none, or it is empty: set -kubeconfig or $KUBECONFIG")
	}
	if err == nil {
		u.wrappers, err = u.cfg.TransportConfig()
	}
	if err == nil {
		u.settings, err = transport.TLSConfigFor(u.wrappers)
	}
	if err != nil {
		where := o.Kubeconfig
		if where == "" {
			where = strings.Join(rules.Precedence, ", ")
		}
		if o.Context != "" {
			where += ", context " + o.Context
		}
		return nil, fmt.Errorf("no usable kubeconfig (%s): %w", where, fileerr.Explain(err))
	}
	return u, nil
}

// present lets a TLS connection to a router use the client certificate of the user. The router does
// not learn the key, so it may be presented to each router that requests it.
func (u *user) present(settings *tls.Config) {
	if u.settings != nil && u.cfg.Impersonate.UserName == "" {
		settings.Certificates = u.settings.Certificates
		settings.GetClientCertificate = u.settings.GetClientCertificate
	}
}

// hasToken reports whether requests can have credentials besides a certificate.
func (u *user) hasToken() bool {
	return u.cfg.BearerToken != "" || u.cfg.BearerTokenFile != "" || u.cfg.ExecProvider != nil || u.cfg.AuthProvider != nil
}

// login returns a transport that sends the token of the user to a router that answers 401. A router
// without authentication never gets it.
func (u *user) login(plain http.RoundTripper) http.RoundTripper { return &login{user: u, plain: plain} }

// anonymous returns a transport that words the answer 401 of a router, for a user without
// credentials.
func anonymous(plain http.RoundTripper) http.RoundTripper { return &unauthenticated{plain} }

type unauthenticated struct{ plain http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (n *unauthenticated) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.plain.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	_ = response.Body.Close() // another error is returned
	return nil, &api.UnreachableError{Text: "the router asks for credentials: choose those of a kubeconfig with -context or -kubeconfig"}
}

type login struct {
	user  *user
	plain http.RoundTripper
	asked atomic.Bool // the router asks for credentials
}

// RoundTrip implements http.RoundTripper.
func (l *login) RoundTrip(request *http.Request) (*http.Response, error) {
	if l.asked.Load() {
		return l.authenticated(request)
	}
	response, err := l.plain.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	if as := l.user.cfg.Impersonate.UserName; as != "" {
		_ = response.Body.Close() // another error is returned
		return nil, &api.UnreachableError{Text: fmt.Sprintf("the router asks for credentials, and the kubeconfig acts as another user (as: %s), which only the API server supports: use a context without as", as)}
	}
	if !l.user.hasToken() {
		_ = response.Body.Close() // another error is returned
		return nil, &api.UnreachableError{Text: "the router asks for credentials, and the kubeconfig has no token; it accepts a client certificate only with TLS and listen.tls.clientCA"}
	}
	_ = response.Body.Close() // the answer to the second request counts
	l.asked.Store(true)
	again := request.Clone(request.Context())
	if request.GetBody != nil {
		if again.Body, err = request.GetBody(); err != nil {
			return nil, fmt.Errorf("repeat the request: %w", err)
		}
	}
	return l.authenticated(again)
}

func (l *login) authenticated(request *http.Request) (*http.Response, error) {
	wrappers := *l.user.wrappers
	wrappers.Username, wrappers.Password = "", "" // for the API server only
	with, err := transport.HTTPWrappersForConfig(&wrappers, l.plain)
	if err != nil {
		return nil, &api.UnreachableError{Text: fmt.Sprintf("the credentials of the kubeconfig cannot be used: %v", err)}
	}
	return with.RoundTrip(request)
}
