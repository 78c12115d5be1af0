package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// The bounds of a guest that cannot be configured.
const (
	maxModule   = 32 << 20 // bytes of a module
	maxDeltas   = 256      // deltas of a call
	maxInput    = 1 << 20  // bytes of a call; a delta that is larger is a call of its own
	maxOutput   = 1 << 20  // bytes of an answer
	maxEvents   = 64       // events of a delta
	maxMessage  = 4 << 10  // bytes of a message, the rest is cut off
	maxLogLine  = 4 << 10  // bytes of a line, the rest is cut off
	maxLogLines = 100      // lines a second and handler, the rest is counted

	// An instance is replaced after so many calls, or when so much of its memory limit is in use: memory never shrinks.
	recycleCalls   = 100_000
	recyclePercent = 75
)

// pageSize is the unit of a guest's memory.
const pageSize = 64 << 10

// Config is what stands below `wasm:` in the configuration.
type Config struct {
	Module string      `yaml:"module,required,path" doc:"File of the WebAssembly module."`
	Config config.Node `yaml:"config" doc:"Anything; the guest gets it as JSON."`
	Allow  Allow       `yaml:"allow" doc:"What the module may do beside computing."`
	Limits Limits      `yaml:"limits" doc:"What an instance of the module may use."`
}

// Limits bounds each instance of a module; a handler has as many instances as calls at the same time.
type Limits struct {
	Memory config.Size `yaml:"memory" default:"64Mi" min:"64Ki" max:"4Gi" doc:"Memory of an instance, in steps of 64Ki; Go guests need 4Mi."`
	KV     config.Size `yaml:"kv" default:"1Mi" min:"1Ki" max:"1Gi" doc:"What the handler may remember, keys and 64 bytes for each value included."`
}

// Factory returns the factory of the kind wasm.
func Factory() plugins.Factory[plugins.Handler] {
	return plugins.Factory[plugins.Handler]{
		Kind: "wasm",
		Example: `module: ./plugins/enrich.wasm
config: {threshold: 3}
allow:                    # nothing unless it is said here
  lookup: [pods.byNode, nodes]
  http: [{host: "api.example.com:443", headers: {Authorization: {file: /secrets/token}}, rate: 10}]
  kv: true
limits: {memory: 64Mi, kv: 1Mi}
`,
		Check: func(node config.Node) config.Problems {
			var c Config
			return node.Decode(&c)
		},
		Files: func(node config.Node) []string {
			var c Config
			_ = node.Decode(&c) // Check has accepted it
			return []string{c.Module}
		},
		Open:    open,
		Lookups: lookups,
	}
}

// Validate implements [config.Validator].
func (c *Config) Validate(n config.Node) config.Problems {
	var problems config.Problems
	if scheme, _, ok := strings.Cut(c.Module, "://"); ok {
		problems = append(problems, n.At("module").Problemf("%s:// is not supported yet: give the path of a file", scheme))
	}
	if _, err := c.Config.JSON(); err != nil {
		var of config.Problems
		if !errors.As(err, &of) {
			of = config.Problems{n.At("config").Problemf("%v", err)}
		}
		problems = append(problems, of...)
	}
	return problems
}

func open(ctx context.Context, node config.Node, env plugins.Env) (plugins.Handler, error) {
	var c Config
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
	module, err := readModule(c.Module)
	if err != nil {
		return nil, err
	}
	h, err := newHandler(ctx, settings{
		module: module, config: string(guestConfig), memory: uint64(c.Limits.Memory), rights: newRights(&c, env), env: env,
	})
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", c.Module, err)
	}
	return h, nil
}
