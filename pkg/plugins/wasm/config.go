package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Config is what stands below `wasm:` in the configuration.
type Config struct {
	Module string      `yaml:"module,required,path" doc:"File of the WebAssembly module."`
	Config config.Node `yaml:"config" doc:"Anything; the guest gets it as JSON."`
	Allow  Allow       `yaml:"allow" doc:"What the module may do beside computing."`
	Limits Limits      `yaml:"limits" doc:"What the module's instances may use."`
}

// Factory returns the factory of the kind wasm.
func Factory() plugins.Factory[plugins.Handler] {
	return plugins.Factory[plugins.Handler]{
		Kind:   "wasm",
		Doc:    "Runs a WebAssembly module in a sandbox: docs/PLUGINS.md tells how to write one.",
		Config: Config{},
		Example: `module: ./plugins/enrich.wasm
config: {threshold: 3}
allow:                    # nothing unless it is said here
  lookup: [pods.byNode, nodes]
  http:
    - host: "api.example.com:443"
      scheme: https
      headers: {Authorization: {file: /secrets/token}}
      rate: 10
      private: false
  kv: true
  clock: false
  random: false
limits:                   # the defaults are right for most guests
  module: 32Mi
  memory: 64Mi
  instances: 4
  calls: 100k
  fuel: 75M
  initFuel: 2G
  timeout: 1s
  initTimeout: 5s
  batch: 256
  input: 1Mi
  output: 1Mi
  events: 64
  message: 4Ki
  log: 100
  logLine: 4Ki
  kv: 1Mi
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
	module, err := readModule(c.Module, int64(c.Limits.Module))
	if err != nil {
		return nil, err
	}
	h, err := newHandler(ctx, settings{module: module, config: string(guestConfig), limits: c.Limits, rights: newRights(&c, env), env: env})
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", c.Module, err)
	}
	return h, nil
}
