package wasm

import (
	"context"
	"errors"
	"slices"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/module"
)

// handlerConfig is the configuration below `wasm:`.
type handlerConfig struct {
	Source module.Source `yaml:",inline"`
	Config config.Node   `yaml:"config" doc:"Any value, which the guest gets as JSON."`
	Fields []string      `yaml:"fields" doc:"The fields that the module gets of each object, as in status.phase or metadata.labels[\"app.kubernetes.io/name\"]. Fewer fields make a delta cheaper for a handler that decodes objects. apiVersion, kind, and name, namespace, uid and resourceVersion of the metadata are added. Absent: those that the module declares, or all fields. An empty list: all fields."`
	Allow  host.Allow    `yaml:"allow" doc:"The grants of the module."`
	Limits abi.Limits    `yaml:"limits" doc:"The limits of the module's instances."`
}

// Kind returns the kind of handler `wasm`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "wasm",
		Doc:  "Runs a WebAssembly module in a sandbox. docs/PLUGINS.md describes how to write one.",
		Example: module.Example + `config: {threshold: 3}
` + guest.Example,
	}}
}

// Warn implements [plugins.Warner].
func (kind) Warn(n config.Node) config.Problems {
	var c handlerConfig
	_ = n.Decode(&c) // Check has accepted it
	return c.Allow.Warn(n.At("allow"))
}

// Lookups implements [plugins.LookupRequester].
func (kind) Lookups(n config.Node) []plugins.LookupGrant { return host.Lookups(n.At("allow")) }

type kind struct {
	plugins.Definition[handlerConfig]
}

var _ interface {
	plugins.Warner
	plugins.FileReader
	plugins.Loader
	plugins.LookupRequester
	plugins.Rememberer
} = kind{}

// Interfaces returns the version of each ABI that a guest may use.
func (kind) Interfaces() map[string]int { return map[string]int{"rtr_v1": abi.Version} }

// Files implements [plugins.FileReader].
func (k kind) Files(node config.Node) []string {
	c := k.Accepted(node)
	return c.Source.Files()
}

// Remembers implements [plugins.Rememberer].
func (k kind) Remembers(node config.Node) bool { return k.Accepted(node).Allow.KV }

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) config.Problems {
	return slices.Concat(c.Source.Validate(n), fields.Problems(n, c.Fields), guest.CheckConfig(n, c.Config))
}

// Fields returns the fields that a handler gets of each object, as keys; none: all, or they are not
// known.
func (k kind) Fields(node config.Node) [][]string {
	c := k.Accepted(node)
	return c.Source.Fields(c.Fields, c.Limits.Module)
}

// Load implements [plugins.Loader]. It compiles the module and starts one instance.
func (k kind) Load(ctx context.Context, node config.Node, env plugins.HandlerEnv) config.Problems {
	h, err := k.Open(ctx, node, env)
	if err == nil {
		err = h.Close(ctx)
	}
	c := k.Accepted(node)
	return c.Source.Problems(err)
}

// Open implements [plugins.Kind].
func (kind) Open(ctx context.Context, node config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
	var c handlerConfig
	if err := node.Decode(&c).Err(); err != nil {
		return nil, err
	}
	if c.Allow.KV && env.KV == nil || len(c.Allow.Lookup) > 0 && env.Lookup == nil {
		return nil, errors.New("allow: there is nothing to look up or to remember here")
	}
	guestConfig, err := c.Config.JSON()
	if err != nil {
		return nil, err
	}
	return c.Source.Open(ctx, c.Limits.Module, env, func(ctx context.Context, m module.Content) (plugins.Handler, error) {
		return guest.New(ctx, guest.Description{Kind: "wasm", Digest: m.Digest, Fields: c.Fields}, engine.Settings{
			Module: m.Bytes, Protocol: engine.V1{}, Config: string(guestConfig), Limits: c.Limits, Host: host.New(c.Allow, string(guestConfig), &c.Limits, env), Env: env,
		})
	})
}
