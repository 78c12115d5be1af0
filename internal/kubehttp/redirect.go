package kubehttp

import (
	"fmt"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// maxTarget bounds the text of a redirect's target, in bytes.
const maxTarget = 256

// RedirectError says that an API server, or a proxy before it, answered with a redirect.
type RedirectError struct {
	// Target is the URL that it leads to, without its query, which may hold secrets and differ each
	// time.
	Target string
}

// Error returns the target, the likely reason and the remedy.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("the answer is a redirect to %s, which is not followed, because the credentials would be sent there; "+
		"is there a login proxy before the API server? Use an address that reaches the API server itself", e.Target)
}

// NoRedirects returns a transport that makes a [RedirectError] of each redirect, so that no client
// of it sends the request, with its credentials, anywhere else.
func NoRedirects(to http.RoundTripper) http.RoundTripper { return noRedirects{to} }

type noRedirects struct{ http.RoundTripper }

var _ utilnet.RoundTripperWrapper = noRedirects{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (n noRedirects) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// CloseIdleConnections implements the interface that http.Client checks for.
func (n noRedirects) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(n.RoundTripper) }

// RoundTrip implements http.RoundTripper.
func (n noRedirects) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode < 300 || response.StatusCode > 399 || response.Header.Get("Location") == "" {
		return response, err
	}
	_ = response.Body.Close() // nothing of it is used
	return nil, &RedirectError{target(request.URL, response.Header.Get("Location"))}
}

func target(from *url.URL, location string) string {
	to, err := from.Parse(location)
	if err != nil {
		return "an invalid address"
	}
	text := (&url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}).String()
	return text[:min(len(text), maxTarget)]
}
