package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/wasm/internal/limits"
)

// handlerConfig is the configuration below `wasm:`.
type handlerConfig struct {
	Module string        `yaml:"module,required,path" doc:"File of the WebAssembly module."`
	SHA256 string        `yaml:"sha256" doc:"SHA-256 of the module, in hexadecimal digits. A file with another content is not loaded. Required with the flag -require-digests."`
	Config config.Node   `yaml:"config" doc:"Any value, which the guest gets as JSON."`
	Allow  host.Allow    `yaml:"allow" doc:"The grants of the module."`
	Limits limits.Limits `yaml:"limits" doc:"The limits of the module's instances."`
}

// Kind returns the kind of handler `wasm`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "wasm",
		Doc:  "Runs a WebAssembly module in a sandbox. docs/PLUGINS.md describes how to write one.",
		Example: `module: ./plugins/enrich.wasm
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   # sha256sum ./plugins/enrich.wasm; absent: any content
config: {threshold: 3}
allow:                    # nothing unless it is said here
  lookup: [pods.byNode, nodes]
  http:
    - host: "api.example.com:443"
      scheme: https
      methods: [GET, POST]
      paths: ["/v1/tickets", "/v1/tickets/*"]
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
	}}
}

// Warn implements [plugins.Warner]. It reports headers that the router would send without
// encryption.
func (kind) Warn(n config.Node) (problems config.Problems) {
	var c handlerConfig
	_ = n.Decode(&c) // Check has accepted it
	for i, item := range n.At("allow").At("http").Items() {
		if h := &c.Allow.HTTP[i]; h.Scheme == "http" && len(h.Headers) > 0 {
			host, _, _ := net.SplitHostPort(h.Address()) // Validate has accepted it
			problems = append(problems, plugins.Plaintext(item.At("headers"), "the headers go", host, "write scheme: https")...)
		}
	}
	return problems
}

// Lookups implements [plugins.LookupRequester].
func (kind) Lookups(node config.Node) (grants []plugins.LookupGrant) {
	for _, item := range node.At("allow").At("lookup").Items() {
		var name string
		_ = item.Decode(&name) // Check has accepted it
		of := host.ParseIndex(name)
		grants = append(grants, plugins.LookupGrant{Source: of.Source, Index: of.Index, Node: item})
	}
	return grants
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

// Interfaces returns the version of each ABI that a guest may use.
func (kind) Interfaces() map[string]int { return map[string]int{"rtr_v1": abi.Version} }

// Files implements [plugins.FileReader].
func (k kind) Files(node config.Node) []string { return []string{k.Accepted(node).Module} }

// Remembers implements [plugins.Rememberer].
func (k kind) Remembers(node config.Node) bool { return k.Accepted(node).Allow.KV }

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) config.Problems {
	var problems config.Problems
	if scheme, _, ok := strings.Cut(c.Module, "://"); ok {
		problems = append(problems, n.At("module").Problemf("%s:// is not supported yet: give the path of a file", scheme))
	}
	if sum, err := hex.DecodeString(c.SHA256); c.SHA256 != "" && (err != nil || len(sum) != sha256.Size) {
		problems = append(problems, n.At("sha256").Problemf("must be %d hexadecimal digits, as sha256sum prints them", 2*sha256.Size))
	} else if c.SHA256 == "" && n.Policy().RequireDigests {
		problems = append(problems, n.Problemf("sha256 is missing: the router was started with -require-digests; write what sha256sum prints for the module"))
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

// Load implements [plugins.Loader]. It compiles the module and starts one instance.
func (k kind) Load(ctx context.Context, node config.Node, env plugins.HandlerEnv) config.Problems {
	h, err := k.Open(ctx, node, env)
	if err == nil {
		err = h.Close(ctx)
	}
	if err != nil {
		return config.Problems{node.At("module").Problemf("%v", err)}
	}
	return nil
}

func readModule(path string, longest int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("module %s cannot be read: %w: build it, or correct the path", path, fileerr.Cause(err))
	}
	if err != nil {
		return nil, fmt.Errorf("module %s cannot be read: %w", path, fileerr.Cause(err))
	}
	defer f.Close()
	module, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil {
		return nil, fmt.Errorf("module %s cannot be read: %w", path, fileerr.Cause(err))
	}
	if int64(len(module)) > longest {
		return nil, fmt.Errorf("module %s: larger than %d bytes: build it without debug information (Go: -ldflags '-s -w'), or raise limits.module", path, longest)
	}
	return module, nil
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
	module, err := readModule(c.Module, int64(c.Limits.Module))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(module)
	digest := hex.EncodeToString(sum[:])
	if c.SHA256 != "" && !strings.EqualFold(digest, c.SHA256) {
		return nil, fmt.Errorf("module %s: its content differs from sha256: its SHA-256 is %s", c.Module, digest)
	}
	h, err := newHandler(ctx, digest, engine.Settings{
		Module: module, Config: string(guestConfig), Limits: c.Limits, Host: host.New(c.Allow, string(guestConfig), &c.Limits, env), Env: env,
	})
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", c.Module, err)
	}
	env.Log.Info("module loaded", "module", c.Module, "sha256", digest)
	return h, nil
}
