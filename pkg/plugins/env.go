package plugins

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// Env is what the host gives to each handler and sink.
type Env struct {
	Name    string // the name in the configuration
	Cluster string
	Log     *slog.Logger     // has the name as an attribute already
	Metrics *metrics.Metrics // never nil
	// the time for rules and limits, which tests move by hand; nil: the real one
	Clock timer.Clock
	KV    KV // what the component remembers; nil where the host keeps nothing
}

// HandlerEnv is what the host gives to a handler.
type HandlerEnv struct {
	Env

	Workers int // how many calls of Handle there are at most at the same time
	// a folder for results that can be made again, writable for the router's user only; empty: none
	Cache     string
	Lookup    Lookup // the caches of the sources in Lookups of a [LookupRequester]
	APIServer string // host:port of the cluster's API server; empty: unknown

	// HTTP answers the requests of a handler in place of the network. The headers that the
	// configuration adds to a request, which may be secret, are neither read nor given to it. nil:
	// requests are sent.
	HTTP http.RoundTripper
}

// SinkEnv is what the host gives to a sink.
type SinkEnv struct {
	Env

	Stdout io.Writer // where the stdout sink writes; safe for concurrent use
	// how the router speaks to the API server of its cluster; nil: there is no cluster
	API *API
}
