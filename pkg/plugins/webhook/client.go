package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

func newClient(t *tls.Config, connect time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: connect, KeepAlive: keepAlive}).DialContext,
			TLSClientConfig:     t,
			TLSHandshakeTimeout: connect,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // nobody reads the response
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			IdleConnTimeout:     idleTime,
		},
		// A redirect would carry the headers, so the secrets, and the event to a place that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
