package extism

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/module"
)

// handlerConfig is the configuration below `extism:`.
type handlerConfig struct {
	Source   module.Source `yaml:",inline"`
	Function string        `yaml:"function" default:"handle" doc:"The function of the module that takes deltas."`
	Config   config.Node   `yaml:"config" doc:"A mapping, whose values the guest gets as texts: those that are no texts as JSON."`
	Fields   []string      `yaml:"fields" doc:"The fields that the module gets of each object, as in status.phase or metadata.labels[\"app.kubernetes.io/name\"]. Fewer fields make a delta cheaper for a handler that decodes objects. apiVersion, kind, and name, namespace, uid and resourceVersion of the metadata are added. Absent: those that the module declares, or all fields. An empty list: all fields."`
	Allow    host.Allow    `yaml:"allow" doc:"The grants of the module. Its variables need kv."`
	Limits   abi.Limits    `yaml:"limits" doc:"The limits of the module's instances."`
}

// Kind returns the kind of handler `extism`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "extism",
		Doc:  "Runs a WebAssembly module that was written for Extism, in the sandbox of the kind wasm. docs/PLUGINS-REFERENCE.md has its interface.",
		Example: module.Example + `function: handle
config: {threshold: 3}
` + guest.Example,
	}}
}

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

// Warn implements [plugins.Warner].
func (kind) Warn(n config.Node) config.Problems {
	var c handlerConfig
	_ = n.Decode(&c) // Check has accepted it
	return c.Allow.Warn(n.At("allow"))
}

// Lookups implements [plugins.LookupRequester].
func (kind) Lookups(n config.Node) []plugins.LookupGrant { return host.Lookups(n.At("allow")) }

// Files implements [plugins.FileReader].
func (k kind) Files(node config.Node) []string {
	c := k.Accepted(node)
	return c.Source.Files()
}

// Remembers implements [plugins.Rememberer].
func (k kind) Remembers(node config.Node) bool { return k.Accepted(node).Allow.KV }

// Of the memory of an instance, a part is for the blocks that the guest shares with the host.
const (
	blocksPart = 4
	mostBlocks = 1 << 30
)

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) config.Problems {
	problems := append(c.Source.Validate(n), fields.Problems(n, c.Fields)...)
	if c.Function == "" {
		problems = append(problems, n.At("function").Problemf("is empty: name a function that the module exports"))
	}
	if c.Limits.Memory < blocksPart*leastMemory {
		problems = append(problems, n.At("limits").At("memory").Problemf("must be at least %dKi: a quarter of it is for the deltas and answers", blocksPart*leastMemory>>10))
	}
	more := guest.CheckConfig(n, c.Config)
	if more == nil {
		if _, err := texts(c.Config); err != nil {
			more = config.Problems{n.At("config").Problemf("%v", err)}
		}
	}
	return append(problems, more...)
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
	values, err := texts(c.Config)
	if err != nil {
		return nil, err
	}
	blocks := min(c.Limits.Memory/blocksPart, mostBlocks)
	c.Limits.Memory -= blocks
	return c.Source.Open(ctx, c.Limits.Module, env, func(ctx context.Context, m module.Content) (plugins.Handler, error) {
		return guest.New(ctx, guest.Description{Kind: "extism", Digest: m.Digest, Fields: c.Fields}, engine.Settings{
			Module: m.Bytes, Config: "null", Limits: c.Limits, Host: host.New(c.Allow, "null", &c.Limits, env), Env: env,
			Protocol: protocol{function: c.Function, config: values, limits: &c.Limits, blocks: uint64(blocks)},
		})
	})
}

// texts returns the configuration of a handler for config_get.
func texts(section config.Node) (map[string]string, error) {
	text, err := section.JSON()
	if err != nil {
		return nil, err
	}
	if rawjson.Value(text).IsNull() {
		return nil, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, errors.New("must be a mapping: a module for Extism asks for each value by its key")
	}
	values := make(map[string]string, len(members))
	for key, member := range members {
		values[key] = string(member)
		if value := rawjson.Value(member); value.Kind() == rawjson.String {
			values[key] = value.Str()
		}
	}
	return values, nil
}
