package process

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
)

// handlerConfig is the configuration below `process:`.
type handlerConfig struct {
	Command []string                 `yaml:"command,required" min:"1" doc:"The program and its arguments. The program is a file in a folder that the router was started with, by -plugin-dir."`
	SHA256  string                   `yaml:"sha256,required" doc:"SHA-256 of the program, in hexadecimal digits."`
	Env     map[string]config.Secret `yaml:"env" doc:"The program's environment. It has nothing of the router's: PATH: {env: PATH} hands it on."`
	TLS     bool                     `yaml:"tls" default:"true" doc:"Both sides prove by certificates who they are. Plugins in Go can; false for others."`
	Config  config.Node              `yaml:"config" doc:"Anything; the plugin gets it as JSON. It is compared with the plugin's own schema, if it has one, when the plugin starts: router check runs no plugin."`
	Allow   allowConfig              `yaml:"allow" doc:"What of the router the plugin may use."`
	Limits  limitsConfig             `yaml:"limits" doc:"What the plugin may cost the router."`
}

// allowConfig contains the grants of a plugin. Without an entry nothing is granted.
type allowConfig struct {
	Lookup []string `yaml:"lookup" doc:"What it may look up: source.index, or a whole source."`
	KV     bool     `yaml:"kv" doc:"Remember values from one call to the next."`
	Log    bool     `yaml:"log" doc:"Log with a level. What it prints is logged in any case."`
}

// any reports whether there is a grant.
func (a *allowConfig) any() bool { return len(a.Lookup) > 0 || a.KV || a.Log }

// limitsConfig contains the limits of a plugin. The error of a reached limit names it.
type limitsConfig struct {
	Batch   int         `yaml:"batch" default:"256" min:"1" max:"4096" doc:"Most deltas of a call."`
	Input   config.Size `yaml:"input" default:"16Mi" min:"64Ki" max:"256Mi" doc:"Most bytes of a call; a delta that is larger fails."`
	Output  config.Size `yaml:"output" default:"4Mi" min:"1Ki" max:"256Mi" doc:"Most bytes of an answer."`
	Events  int         `yaml:"events" default:"64" min:"1" max:"10000" doc:"Most events of a delta."`
	Message config.Size `yaml:"message" default:"4Ki" min:"16" max:"64Ki" doc:"Most bytes of an error's message, a type or a subject; a longer message is cut."`

	Timeout      time.Duration `yaml:"timeout" default:"30s" min:"1ms" doc:"Time for a call. A plugin that takes longer is killed, and the batch given again."`
	StartTimeout time.Duration `yaml:"startTimeout" default:"30s" min:"1ms" doc:"Time from the start of the program until it has taken its configuration."`
	StopTimeout  time.Duration `yaml:"stopTimeout" default:"5s" min:"1ms" doc:"Time to end when it is told to. Then it is killed, with all that it started."`
	Health       time.Duration `yaml:"health" default:"10s" min:"10ms" doc:"How often the plugin is asked whether it is well, and how long it may take to say so."`
	Breaker      int           `yaml:"breaker" default:"5" min:"0" doc:"After so many losses of the process in a row, without an answer in between, the handler is left alone for a while. 0: never."`

	Log     int         `yaml:"log" default:"100" min:"0" doc:"Most lines that the plugin logs in a second; the rest is counted."`
	LogLine config.Size `yaml:"logLine" default:"4Ki" min:"16" max:"64Ki" doc:"Most bytes of a line; the rest is cut off."`
	KV      config.Size `yaml:"kv" default:"1Mi" min:"1Ki" max:"1Gi" doc:"What the handler may remember, keys and 64 bytes for each value included."`
}

// Kind returns the kind of handler `process`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "process",
		Doc:  "Runs a program beside the router, not sandboxed: docs/PLUGINS.md tells how to write one.",
		Example: `command: [./plugins/enrich, -v]   # a file in a folder of -plugin-dir
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
env:                      # nothing of the router's environment unless it is said here
  PATH: {env: PATH}
  TOKEN: {file: /secrets/token}
  REGION: eu-1
tls: true                 # false for a plugin that is not written in Go
config: {threshold: 3}
allow:
  lookup: [pods.byNode, nodes]
  kv: true
  log: true
limits:                   # the defaults are right for most plugins
  batch: 256
  input: 16Mi
  output: 4Mi
  events: 64
  message: 4Ki
  timeout: 30s
  startTimeout: 30s
  stopTimeout: 5s
  health: 10s
  breaker: 5
  log: 100
  logLine: 4Ki
  kv: 1Mi
`,
	}}
}

type kind struct {
	plugins.Definition[handlerConfig]
}

var _ interface {
	plugins.LookupRequester
	plugins.Rememberer
	plugins.ProgramRunner
} = kind{}

// Remembers implements [plugins.Rememberer].
func (k kind) Remembers(node config.Node) bool { return k.Accepted(node).Allow.KV }

// envName is the syntax of the name of a variable.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) (problems config.Problems) {
	if sum, err := hex.DecodeString(c.SHA256); c.SHA256 != "" && (err != nil || len(sum) != 32) {
		problems = append(problems, n.At("sha256").Problemf("must be 64 hexadecimal digits, as sha256sum prints them"))
	}
	for i, item := range n.At("command").Items() {
		if i < len(c.Command) && i == 0 && c.Command[0] == "" {
			problems = append(problems, item.Problemf("is empty: the program comes first"))
		}
	}
	for name := range c.Env {
		at := n.At("env").At(name)
		switch {
		case !envName.MatchString(name):
			problems = append(problems, at.Problemf("is not the name of an environment variable"))
		case strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, "DELTAROUTER_"):
			problems = append(problems, at.Problemf("is set by the router itself: remove it"))
		}
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

// Validate implements [config.Validator].
func (a *allowConfig) Validate(n config.Node) (problems config.Problems) {
	for i, item := range n.At("lookup").Items() {
		if i < len(a.Lookup) && !lookupSyntax(a.Lookup[i]) {
			problems = append(problems, item.Problemf("must be the name of a source, or source.index"))
		}
	}
	return problems
}

// lookupSyntax reports whether a text is source or source.index. The host checks whether they
// exist.
func lookupSyntax(text string) bool {
	source, index, dotted := strings.Cut(text, ".")
	return source != "" && (index != "") == dotted && !strings.ContainsAny(index, ". ")
}

// Lookups implements [plugins.LookupRequester].
func (kind) Lookups(node config.Node) (grants []plugins.LookupGrant) {
	for _, item := range node.At("allow").At("lookup").Items() {
		var name string
		_ = item.Decode(&name) // Check has accepted it
		source, index, _ := strings.Cut(name, ".")
		grants = append(grants, plugins.LookupGrant{Source: source, Index: index, Node: item})
	}
	return grants
}

// Programs implements [plugins.ProgramRunner].
func (kind) Programs(node config.Node) []plugins.Program {
	var c handlerConfig
	_ = node.Decode(&c) // Check has accepted it
	at := node.At("command").Items()[0]
	return []plugins.Program{{File: at.File(c.Command[0]), SHA256: c.SHA256, Node: at, Sum: node.At("sha256")}}
}

// Open implements [plugins.Kind].
func (k kind) Open(ctx context.Context, node config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
	var c handlerConfig
	if err := node.Decode(&c).Err(); err != nil {
		return nil, err
	}
	if c.Allow.KV && env.KV == nil || len(c.Allow.Lookup) > 0 && env.Lookup == nil {
		return nil, errors.New("allow: there is nothing to look up or to remember here")
	}
	pluginConfig, err := c.Config.JSON()
	if err != nil {
		return nil, err
	}
	p := k.Programs(node)[0]
	s := &settings{handlerConfig: c, text: string(pluginConfig), node: node.At("config"), env: env, lines: lines.New(env.Log, c.Limits.Log, int(c.Limits.LogLine)), clock: env.Clock}
	if s.clock == nil {
		s.clock = timer.Real()
	}
	if s.program, err = child.Load(p.File, p.SHA256); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	h, err := newHandler(ctx, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("program %s: %w", p.File, err), s.program.Close())
	}
	return h, nil
}

// settings are the settings of a process.
type settings struct {
	handlerConfig

	text    string      // the plugin's configuration as JSON
	node    config.Node // and its position
	env     plugins.HandlerEnv
	program *child.Program
	lines   *lines.Log
	clock   timer.Clock
}
