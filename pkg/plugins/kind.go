package plugins

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Kind makes the handlers or sinks of one kind: T is [Handler] or [Sink], E is [HandlerEnv] or
// [SinkEnv]. The package of a kind exports it as the function Kind.
//
// Every node that a method other than Check gets was accepted by Check. A kind tells the host more
// about itself with the optional interfaces below, which the host finds by type assertion.
type Kind[T, E any] interface {
	// Describe returns the key of the kind in the configuration, and its documentation.
	Describe() config.Kind
	// Check returns all mistakes of a configuration. It opens nothing and connects to nothing.
	Check(node config.Node) config.Problems
	// Open makes one handler or sink.
	Open(ctx context.Context, node config.Node, env E) (T, error)
}

type (
	// HandlerKind makes handlers of one kind.
	HandlerKind = Kind[Handler, HandlerEnv]
	// SinkKind makes sinks of one kind.
	SinkKind = Kind[Sink, SinkEnv]
)

// The optional interfaces of a [Kind].
type (
	// Warner is a kind that finds probable mistakes in a configuration that is allowed. `router
	// check` shows them.
	Warner interface {
		Warn(node config.Node) config.Problems
	}
	// FileReader is a kind whose configuration includes the content of files. When one of them
	// changes, a reload opens the component anew.
	FileReader interface {
		Files(node config.Node) []string
	}
	// Prober is a kind that can test whether the receiver of a configuration can be reached,
	// without sending an event. `router check -connect` calls it. The error names no secrets.
	Prober interface {
		Probe(ctx context.Context, node config.Node) error
	}
	// RightsRequester is a kind that needs rights in the router's own cluster. `router check
	// -connect` asks for each.
	RightsRequester interface {
		Rights(node config.Node) []Right
	}
)

// The optional interfaces of a [HandlerKind].
type (
	// Loader is a kind whose handlers can be made and ended by `router check`, to find mistakes
	// that Check cannot. Load runs no program of the machine and sends requests only through
	// env.HTTP.
	Loader interface {
		Load(ctx context.Context, node config.Node, env HandlerEnv) config.Problems
	}
	// LookupRequester is a kind whose handlers look objects up. The host refuses unknown sources
	// and indexes, and the routes of the handler wait until the sources have synced.
	LookupRequester interface {
		Lookups(node config.Node) []LookupGrant
	}
	// Rememberer is a kind whose handlers may use Env.KV.
	Rememberer interface {
		Remembers(node config.Node) bool
	}
	// ProgramRunner is a kind whose handlers run files as processes. The host refuses programs that
	// the policy does not cover, and programs with another content.
	ProgramRunner interface {
		Programs(node config.Node) []Program
	}
)

// Ordered is a [SinkKind] whose sinks keep the order of the events of one [event.Event.OrderKey]:
// after an event that Write neither delivered nor rejected, it delivers no other event of that key.
// A Write may get several deltas of one key only if its sink is ordered.
type Ordered interface {
	InOrder()
}

// Definition describes a kind whose configuration is decoded into a C, a struct with the tags of
// package config. A kind embeds it and adds Open.
type Definition[C any] struct {
	Name    string // the key in the configuration: the webhook in {webhook: {url: …}}
	Doc     string // says in a sentence what the kind does
	Example string // YAML as it stands below the key, with every key; a test checks it
}

// Describe implements [Kind].
func (d Definition[C]) Describe() config.Kind {
	var c C
	return config.Kind{Name: d.Name, Doc: d.Doc, Example: d.Example, Config: c}
}

// Check implements [Kind].
func (d Definition[C]) Check(node config.Node) config.Problems { return node.Decode(new(C)) }

// Decode returns the configuration, defaults included. The error names all mistakes.
func (d Definition[C]) Decode(node config.Node) (C, error) {
	var c C
	err := node.Decode(&c).Err()
	return c, err
}

// Accepted returns the configuration of a node that Check accepted.
func (d Definition[C]) Accepted(node config.Node) C {
	c, _ := d.Decode(node)
	return c
}

// SinkDefinition is a [Definition] of sinks that keep the order of events (see [Ordered]). It is a
// whole kind; one that has more to tell embeds it.
type SinkDefinition[C any] struct {
	Definition[C]

	New func(ctx context.Context, c C, env SinkEnv) (Sink, error) // makes a sink
}

// Open implements [Kind].
func (d SinkDefinition[C]) Open(ctx context.Context, node config.Node, env SinkEnv) (Sink, error) {
	c, err := d.Decode(node)
	if err != nil {
		return nil, err
	}
	return d.New(ctx, c, env)
}

// InOrder implements [Ordered].
func (SinkDefinition[C]) InOrder() {}

// Program is a file that is run as a process.
type Program struct {
	File   string // its path
	SHA256 string // of its content, in hexadecimal digits

	Node, Sum config.Node // where they are written
}
