// Package plugins is the seam between the pipeline and what handles and delivers events: a [Handler] turns deltas into events, a
// [Sink] delivers them, a [Factory] makes one of a kind from its piece of the configuration.
//
// Each kind lives in a folder of its own below this package and imports only this package and the leaves; cmd/router/components.go
// is the list of the kinds that the router has. The contract that every kind keeps is tested by plugins/plugintest.
package plugins

import (
	"context"
	"io"
	"log/slog"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/metrics"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

// Handler decides about deltas and makes events of them.
type Handler interface {
	// Handle takes a batch, which it must not modify or keep, and returns one Result per delta, in order. An error is about the
	// batch as a whole: no delta of it was handled, and it may be given again. Handle may be called from several goroutines at
	// once, at most Env.Workers of them; deltas of one object never at the same time. It returns soon after ctx is done.
	Handle(ctx context.Context, batch []*event.Delta) ([]Result, error)
	// Close ends the handler. It is called once, after the last Handle has returned.
	Close(ctx context.Context) error
}

// Sink delivers events.
type Sink interface {
	// Write delivers events in order. It returns nil if it delivered all of them, else one error per event, nil for each that was
	// delivered. An error made by [Reject] means that trying again is of no use; any other means that the sink is unavailable at
	// the moment, see [RetryLater], but for [Postpone], which is about one event, and [Pause], which ends its route. The slice must not be modified, nor kept when Write returns: it is used again. A sink that loses
	// its connection gives up on the rest of the events, with the same error for each: the host knows best when to try again. Write
	// may be called from several goroutines at once. It returns soon after ctx is done.
	Write(ctx context.Context, events []event.Event) []error
	// Close ends the sink. It is called once, after the last Write has returned.
	Close(ctx context.Context) error
}

// Verdict is what a handler decides about one delta.
type Verdict uint8

// The verdicts, with the values that guests use.
const (
	OK    Verdict = iota // done; the Result's events are delivered
	Retry                // not now: try again later, counted as an attempt
	Drop                 // done, and nothing is to be delivered
	Fail                 // rejected: retry as often as the route says, then its onFailure decides
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Retry:
		return "retry"
	case Drop:
		return "drop"
	case Fail:
		return "fail"
	}
	return "unknown"
}

// Result is a handler's answer for one delta.
type Result struct {
	Verdict Verdict
	// Err is why, for Retry and Fail. An error made by [Reject] is not tried again: it would fail the same way.
	// [RetryLater] sets when to try again, and [Unavailable] also that this was no attempt.
	Err error
	// Events is what to deliver, for OK.
	Events []Emit
}

// Emit is one event that a handler asks for.
type Emit struct {
	Data    []byte // JSON, the event's data
	Type    string // empty: deltarouter.<op>
	Subject string // empty: namespace/name of the delta's object
}

// Factory makes handlers or sinks of one kind. T is [Handler] or [Sink].
type Factory[T any] struct {
	// Kind is the key in the configuration: the "webhook" in `hook: {webhook: {url: …}}`.
	Kind string
	// Doc says in a sentence what the kind does.
	Doc string
	// Config is a value of the struct that Check decodes: its tags are what the JSON Schema and docs/CONFIG.md say about the kind.
	Config any
	// Example is a piece of YAML as it stands below the kind, with every key. A test checks that Check accepts it.
	Example string
	// Check finds all mistakes of a configuration. It opens nothing and connects to nothing.
	Check func(node config.Node) config.Problems
	// Files returns the files whose content is part of the configuration, of a node that Check accepted: when one of them changes, a
	// reload opens the component anew. nil: there are none.
	Files func(node config.Node) []string
	// Probe finds out whether what the configuration leads to can be reached, as far as that can be done without sending anything:
	// `router check -connect` calls it, with a node that Check accepted. The error names no secrets. nil: there is nothing to reach.
	Probe func(ctx context.Context, node config.Node) error
	// Open makes one. It is called only with a node that Check accepted.
	Open func(ctx context.Context, node config.Node, env Env) (T, error)
	// Lookups returns what a handler may look up, of a node that Check accepted. The host refuses what there is not, and lets the
	// handler's routes wait for it. nil: nothing.
	Lookups func(node config.Node) []LookupGrant
	// Rights returns what the component must be allowed to do in the router's own cluster, of a node that Check accepted:
	// `router check -connect` asks for each. nil: nothing.
	Rights func(node config.Node) []Right
	// Programs returns the files that a handler runs as processes, of a node that Check accepted. The host refuses those that
	// plugins.dirs does not cover, or whose content is another. nil: none.
	Programs func(node config.Node) []Program
	// Feeds returns the route that a sink gives events to, and where its name is written, of a node that Check accepted. The host refuses
	// what there is not, and gives it the events by itself: nothing is written to the sink. nil: it is one that is written to.
	Feeds func(node config.Node) (route string, at config.Node)
}

// Program is a file that is run as a process.
type Program struct {
	File   string // its path
	SHA256 string // of its content, in hexadecimal digits

	Node, Sum config.Node // where they are written
}

// Describe returns what the configuration's schema and reference say about the kind.
func (f *Factory[T]) Describe() config.Kind {
	return config.Kind{Name: f.Kind, Doc: f.Doc, Example: f.Example, Config: f.Config}
}

// Env is what the host gives to a handler or sink.
type Env struct {
	Name    string // the name in the configuration
	Cluster string
	Log     *slog.Logger     // has the name as an attribute already
	Metrics *metrics.Metrics // never nil
	Stdout  io.Writer        // where the stdout sink writes; safe for concurrent use
	Workers int              // how many calls of Handle there are at most at the same time
	Cache   string           // a folder for what can be made again, which only the router's user can write to; empty: there is none

	Clock     timer.Clock // what time it is for handlers, which tests move by hand; nil: the real one
	KV        KV          // what the handler remembers; nil for sinks, and where the host keeps nothing
	Lookup    Lookup      // what the host's cache holds of the factory's Lookups; nil for sinks
	APIServer string      // host:port of the cluster's API server; empty: unknown
	API       *API        // how the router speaks to that API server; nil for handlers, and where there is no cluster
}
