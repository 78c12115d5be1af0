// Package remote reaches the control API of a router: at an address, or in a pod of a cluster
// through the API server, as kubectl port-forward does. The router gets the credentials of the
// user's kubeconfig if it asks for them.
package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// maxHeaders bounds the headers of an answer.
const maxHeaders = 64 << 10

// Options say which router is meant, and who asks.
type Options struct {
	Addr string // as in listen.api, or an https URL
	CA   string // file with the certificate authorities of an https URL; empty: those of the system
	// The PEM certificate of a router that serves TLS at Addr. No other one is accepted there.
	Certificate string

	Pod string // [NAMESPACE/]NAME, instead of Addr

	// The kubeconfig and its context; empty: those of kubectl. With Addr, the router gets
	// credentials only if one of them is given.
	Kubeconfig, Context string
}

// Check refuses options that do not go together. Its texts name the flags of the command line.
func (o Options) Check() error {
	secure := strings.HasPrefix(o.Addr, "https://")
	switch {
	case o.Pod != "" && o.Addr != "":
		return errors.New("-in and -api both name a router: leave one of them out")
	case o.CA != "" && !secure:
		return errors.New("-ca is for -api https://HOST:PORT: leave it out, or add that")
	case strings.HasPrefix(o.Addr, "http://"):
		return fmt.Errorf("-api %s: leave http:// out, or write https://", o.Addr)
	case secure:
		if u, err := url.Parse(o.Addr); err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
			return fmt.Errorf("-api %s: write https://HOST:PORT", o.Addr)
		}
	}
	if o.Pod != "" {
		_, _, err := o.pod()
		return err
	}
	return nil
}

// pod returns the namespace, which may be empty, and the name.
func (o Options) pod() (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(o.Pod, "/")
	switch {
	case !ok:
		namespace, name = "", o.Pod
	case namespace == "":
		err = fmt.Errorf("-in %s: write NAMESPACE/POD, or POD", o.Pod)
	}
	if name == "" || strings.Contains(name, "/") {
		err = fmt.Errorf("-in %s: write NAMESPACE/POD, or POD", o.Pod)
	}
	return namespace, name, err
}

// Open returns a client of the router. A tunnel to a pod stays open until ctx is done.
func Open(ctx context.Context, o Options) (*api.Client, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	switch {
	case o.Pod != "":
		return inPod(ctx, o)
	case strings.HasPrefix(o.Addr, "https://"):
		return secured(o)
	case o.Certificate != "":
		return pinned(o)
	case o.Kubeconfig == "" && o.Context == "":
		return api.NewClientAt(api.Local(o.Addr).Wrapped(anonymous)), nil
	}
	if !local(o.Addr) {
		return nil, fmt.Errorf("-api %s: the credentials of a kubeconfig are not sent without TLS: write https://%s", o.Addr, o.Addr)
	}
	u, err := loadUser(o)
	if err != nil {
		return nil, err
	}
	return api.NewClientAt(api.Local(o.Addr).Wrapped(u.login)), nil
}

// local reports whether an address of listen.api is reachable from this machine only.
func local(addr string) bool {
	if strings.HasPrefix(addr, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// secured returns a client of an https URL.
func secured(o Options) (*api.Client, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fileerr.Explain(err)
		}
		if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("-ca %s: the file has no PEM certificate", o.CA)
		}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders, TLSClientConfig: settings,
	}
	return overTLS(o, api.Endpoint{Name: o.Addr, URL: strings.TrimRight(o.Addr, "/"), Transport: transport})
}

// pinned returns a client of a router whose certificate is known from its configuration.
func pinned(o Options) (*api.Client, error) {
	block, _ := pem.Decode([]byte(o.Certificate))
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil || block == nil {
		return nil, fmt.Errorf("the address %q and the certificate of the router do not fit: see listen in its configuration", o.Addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens on all addresses
	}
	settings := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return &api.UnreachableError{Text: fmt.Sprintf("the server at %s has another certificate than the configuration of the router (listen.tls.cert): is it that router?", o.Addr)}
			}
			return nil
		},
	}
	// No proxy: the router runs on this machine.
	transport := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders, TLSClientConfig: settings}
	return overTLS(o, api.Endpoint{Name: o.Addr, URL: "https://" + net.JoinHostPort(host, port), Transport: transport})
}

// overTLS returns a client with the credentials of the user, if a kubeconfig is named.
func overTLS(o Options, way api.Endpoint) (*api.Client, error) {
	if o.Kubeconfig == "" && o.Context == "" {
		return api.NewClientAt(way.Wrapped(anonymous)), nil
	}
	u, err := loadUser(o)
	if err != nil {
		return nil, err
	}
	u.present(way.Transport.(*http.Transport).TLSClientConfig)
	return api.NewClientAt(way.Wrapped(u.login)), nil
}
