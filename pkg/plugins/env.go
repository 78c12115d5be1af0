package plugins

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/internal/timer"
)

// Env is the part of the environment that handlers and sinks have in common.
type Env struct {
	Name    string // the name in the configuration
	Cluster string
	Log     *slog.Logger     // has the name as an attribute already
	Metrics *metrics.Metrics // never nil
	// the clock of rules and limits, which tests advance by hand; nil: the system clock
	Clock timer.Clock
	KV    KV // the store of the component; nil: the host keeps no values
}

// HandlerEnv is the environment of a handler.
type HandlerEnv struct {
	Env

	Workers int // the maximum of simultaneous calls of Handle
	// a folder for results that can be computed again, writable by the router's user only; empty:
	// none
	Cache     string
	Modules   Modules
	Lookup    Lookup // the caches of the sources that a [LookupRequester] names
	APIServer string // host:port of the cluster's API server; empty: unknown

	// HTTP answers the requests of a handler instead of the network. It does not get the headers
	// that the configuration adds to a request, which may be secret. nil: the requests are sent.
	HTTP http.RoundTripper

	// Replay has the answers that guests get, to repeat a failed call. nil: the host answers.
	Replay *callrecord.Replay
}

// Modules says where a handler gets modules of registries.
type Modules struct {
	// Dir keeps fetched modules, by digest; empty: the folder of the user does.
	Dir string
	// Offline: nothing is requested from a registry.
	Offline bool
	// Starting: a handler whose registry is not available is opened nevertheless, and postpones its
	// deltas until the module is there. Otherwise opening it fails, and the old one stays in use.
	Starting bool
}

// SinkEnv is the environment of a sink.
type SinkEnv struct {
	Env

	Stdout io.Writer // the output of the stdout sink; safe for concurrent use
	// the API server of the router's cluster; nil: there is no cluster
	API *API
}
