package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/natsconn"
	"github.com/deltarouter/deltarouter/internal/otlpconn"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Components are the kinds of handlers and sinks in this program, and the policy about the parts of
// the machine that a configuration may use; pkg/plugins/all lists them.
type Components struct {
	Policy   config.Policy
	Handlers []plugins.HandlerKind
	Sinks    []plugins.SinkKind
	// Emit makes the handler of a route with `emit`. With grouped it makes one event of a batch.
	Emit func(p *cel.Program, cache cel.Cache, grouped bool) plugins.Handler
}

// Kinds describes the kinds, for the schema and the reference of the configuration.
func (c Components) Kinds() (kinds config.Kinds) {
	for _, k := range c.Handlers {
		kinds.Handlers = append(kinds.Handlers, k.Describe())
	}
	for _, k := range c.Sinks {
		kinds.Sinks = append(kinds.Sinks, k.Describe())
	}
	return kinds
}

// checkComponents lets the kind of each component check its configuration.
func checkComponents[T, E any](what string, configured map[string]*config.Component, kinds []plugins.Kind[T, E]) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		if c.Kind == "" {
			continue // reported already
		}
		kind := KindOf(kinds, c.Kind)
		if kind == nil {
			problems = append(problems, c.Node.Problemf("unknown kind of %s %q; there are: %s", what, c.Kind, namesOf(kinds)))
			continue
		}
		problems = append(problems, kind.Check(c.Config)...)
	}
	return problems
}

// warnAll lets the kind of each component warn about its valid configuration.
func warnAll[T, E any](configured map[string]*config.Component, kinds []plugins.Kind[T, E]) (found config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		if kind, ok := KindOf(kinds, c.Kind).(plugins.Warner); ok {
			found = append(found, kind.Warn(c.Config)...)
		}
	}
	return found
}

// KindOf returns a kind by its name, or nil.
func KindOf[T, E any](kinds []plugins.Kind[T, E], name string) plugins.Kind[T, E] {
	for _, kind := range kinds {
		if kind.Describe().Name == name {
			return kind
		}
	}
	return nil
}

func namesOf[T, E any](kinds []plugins.Kind[T, E]) string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.Describe().Name
	}
	return strings.Join(names, ", ")
}

// checkTraces returns the mistakes in the export of traces; c is nil if there is none.
func checkTraces(c *config.Traces) (problems config.Problems) {
	if c == nil {
		return nil
	}
	over := otlpconn.OfTraces(c)
	return append(over.TLS.Validate(c.At("tls")), over.Check(c.Node, otlpconn.Traces())...)
}

// warnTraces warns of headers that would be sent without encryption.
func warnTraces(c *config.Traces) config.Problems {
	if c == nil {
		return nil
	}
	return otlpconn.OfTraces(c).Warn(c.Node)
}

// checkFleet returns the mistakes in the fleet and its connection to NATS.
func checkFleet(cfg *config.Config) config.Problems {
	f := cfg.Fleet
	if f == nil {
		return nil
	}
	conn := natsconn.Of(&f.NATS)
	return slices.Concat(conn.Check(f.NATS.Node.At("servers")), conn.TLS.Validate(f.NATS.Node.At("tls")))
}

// warnFleet warns of credentials that would be sent to NATS without encryption.
func warnFleet(f *config.Fleet) config.Problems {
	if f == nil {
		return nil
	}
	return natsconn.Of(&f.NATS).Warn(f.NATS.Node.At("servers"))
}
