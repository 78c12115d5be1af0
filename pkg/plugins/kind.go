package plugins

import (
	"context"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Kind opens the handlers or sinks of one kind: T is [Handler] or [Sink], E is [HandlerEnv] or
// [SinkEnv]. The package of a kind exports it as the function Kind.
//
//   - The host calls Check first. Every other method gets only nodes that Check has accepted.
//   - A kind states more about itself by the optional interfaces below. The host finds them by type
//     assertion.
type Kind[T, E any] interface {
	// Describe returns the key of the kind in the configuration, and its documentation.
	Describe() config.Kind
	// Check returns all mistakes of a configuration. It opens no file and no connection.
	Check(node config.Node) config.Problems
	// Open makes one handler or sink.
	Open(ctx context.Context, node config.Node, env E) (T, error)
}

type (
	// AnyKind is a [HandlerKind] or a [SinkKind].
	AnyKind interface{ Describe() config.Kind }
	// HandlerKind makes handlers of one kind.
	HandlerKind = Kind[Handler, HandlerEnv]
	// SinkKind makes sinks of one kind.
	SinkKind = Kind[Sink, SinkEnv]
)

// The optional interfaces of a [Kind].
type (
	// Warner is a kind that finds probable mistakes in a valid configuration. `router check` shows
	// them.
	Warner interface {
		Warn(node config.Node) config.Problems
	}
	// FileReader is a kind whose configuration refers to files. If the content of one changes, a
	// reload opens the component again.
	FileReader interface {
		Files(node config.Node) []string
	}
	// Prober is a kind that can test the connection to the receiver without sending an event.
	// `router check -connect` calls it. The error contains no secrets.
	Prober interface {
		Probe(ctx context.Context, node config.Node) error
	}
	// RightsRequester is a kind that needs rights in the router's own cluster. `router check
	// -connect` tests each right.
	RightsRequester interface {
		Rights(node config.Node) []NeededRight
	}
)

// The optional interfaces of a [HandlerKind].
type (
	// Loader is a kind whose handlers `router check` opens and closes, to find mistakes that Check
	// cannot find. Load starts no program, and sends requests only through env.HTTP.
	Loader interface {
		Load(ctx context.Context, node config.Node, env HandlerEnv) config.Problems
	}
	// LookupRequester is a kind whose handlers look up objects. The host rejects unknown sources
	// and indexes. The routes of the handler wait until the sources have synced.
	LookupRequester interface {
		Lookups(node config.Node) []LookupGrant
	}
	// Rememberer is a kind whose handlers may use Env.KV.
	Rememberer interface {
		Remembers(node config.Node) bool
	}
	// ProgramRunner is a kind whose handlers run files as processes. The host rejects programs that
	// the policy does not permit, and files whose SHA-256 differs.
	ProgramRunner interface {
		Programs(node config.Node) []Program
	}
)

// Ordered is a [SinkKind] whose sinks keep the order of the events with the same
// [event.Event.OrderKey]. After an event that Write neither delivered nor rejected, Write delivers
// no further event of that key. Only an ordered sink gets several deltas of one key in one Write.
type Ordered interface {
	InOrder()
}

// Definition describes a kind whose configuration is decoded into a C, a struct with the tags of
// package config. A kind embeds a Definition and adds Open.
type Definition[C any] struct {
	Name    string // the key in the configuration: webhook in {webhook: {url: …}}
	Doc     string // one sentence on the purpose of the kind
	Example string // the YAML below the key, with every key; a test checks it
}

// Describe implements [Kind].
func (d Definition[C]) Describe() config.Kind {
	var c C
	return config.Kind{Name: d.Name, Doc: d.Doc, Example: d.Example, Config: c}
}

// Check implements [Kind].
func (d Definition[C]) Check(node config.Node) config.Problems { return node.Decode(new(C)) }

// Decode returns the configuration with its defaults. The error names all mistakes.
func (d Definition[C]) Decode(node config.Node) (C, error) {
	var c C
	err := node.Decode(&c).Err()
	return c, err
}

// Accepted returns the configuration of a node that Check has accepted.
func (d Definition[C]) Accepted(node config.Node) C {
	c, _ := d.Decode(node)
	return c
}

// SinkDefinition is a [Definition] of sinks that keep the order of events (see [Ordered]). It is a
// complete kind. A kind with further optional interfaces embeds it.
type SinkDefinition[C any] struct {
	Definition[C]

	New func(ctx context.Context, c C, env SinkEnv) (Sink, error) // opens a sink
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

// HandlerDefinition is a [Definition] of handlers. It is a complete kind. A kind with optional
// interfaces embeds it.
type HandlerDefinition[C any] struct {
	Definition[C]

	New func(ctx context.Context, c C, env HandlerEnv) (Handler, error) // opens a handler
}

// Open implements [Kind].
func (d HandlerDefinition[C]) Open(ctx context.Context, node config.Node, env HandlerEnv) (Handler, error) {
	c, err := d.Decode(node)
	if err != nil {
		return nil, err
	}
	return d.New(ctx, c, env)
}

// Program is a file that a handler runs as a process.
type Program struct {
	File   string // its path
	SHA256 string // of its content, in hexadecimal digits

	Node, Sum config.Node // the positions of both in the configuration
}
