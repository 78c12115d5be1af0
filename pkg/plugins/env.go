package plugins

import (
	"io"
	"log/slog"
	"net/http"
	"time"
)

// Env is the part of the environment that handlers and sinks have in common.
type Env struct {
	Name    string // the name in the configuration
	Cluster string
	Log     *slog.Logger // has the name as an attribute already
	Metrics Metrics      // see Count; nil: nothing is counted
	// the clock of rules and limits, which tests advance by hand; nil: the system clock
	Clock Clock
	KV    KV // the store of the component; nil: the host keeps no values
}

// Count returns the series of this component of a metric, such as [GuestFuel]. labels are the
// values of the labels of the metric after the name of the component. It looks the series up, so a
// component that counts for each delta keeps the result. A metric that the host does not have is
// not counted.
func (e *Env) Count(metric string, labels ...string) Counter {
	if e.Metrics == nil {
		return uncounted{}
	}
	return e.Metrics.Count(metric, append([]string{e.Name}, labels...)...)
}

// The metrics that the router has for components, see docs/METRICS.md.
const (
	GuestMemory = "guest_memory_bytes" // a gauge: Add takes negative numbers, too
	GuestFuel   = "guest_fuel_total"
	GuestsEnded = "guests_ended_total" // has the reason as its label
)

// Metrics finds the series of the metrics of a host. It is safe for concurrent use.
type Metrics interface {
	// Count returns the series of a metric with these values of its labels, never nil.
	Count(metric string, labels ...string) Counter
}

// Counter is one series of a metric. It is safe for concurrent use.
type Counter = interface{ Add(n float64) }

// uncounted is a Counter that nothing reads.
type uncounted struct{}

// Add implements [Counter].
func (uncounted) Add(float64) {}

// Clock reads the time. It is safe for concurrent use.
type Clock interface {
	// Now returns the time. That of the system clock includes a monotonic reading, so intervals do
	// not change when the wall clock jumps.
	Now() time.Time
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

	// Replay is for the router itself: the record of a failed call, which `router plugin replay`
	// repeats. nil: the handler works as usual.
	Replay any
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
