package process

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// handlerConfig is the configuration below `process:`.
type handlerConfig struct {
	Command []string                 `yaml:"command,required" min:"1" doc:"The program and its arguments. The program is a file in a folder of the flag -plugin-dir."`
	SHA256  string                   `yaml:"sha256,required" doc:"SHA-256 of the program, in hexadecimal digits."`
	Env     map[string]config.Secret `yaml:"env" doc:"The program's environment. It inherits no variable of the router: PATH: {env: PATH} passes one on."`
	TLS     bool                     `yaml:"tls" default:"true" doc:"Mutual TLS between router and plugin. Plugins in Go support it. Set false for others."`
	Config  config.Node              `yaml:"config" doc:"Any value, which the plugin gets as JSON. When the plugin starts, the router checks it with the plugin's own schema, if there is one. router check runs no plugin."`
	Fields  []string                 `yaml:"fields" doc:"The fields that the plugin gets of each object, as in status.phase or metadata.labels[\"app.kubernetes.io/name\"]. Fewer fields make a delta cheaper for a handler that decodes objects. apiVersion, kind, and name, namespace, uid and resourceVersion of the metadata are added. Absent or empty: all fields."`
	Allow   allowConfig              `yaml:"allow" doc:"The grants of the plugin."`
	Limits  limitsConfig             `yaml:"limits" doc:"The limits of the plugin."`
}

// allowConfig contains the grants of a plugin. Without an entry nothing is granted.
type allowConfig struct {
	Lookup []string `yaml:"lookup" doc:"The granted look-ups: source.index, or a whole source."`
	KV     bool     `yaml:"kv" doc:"Grants the store of the handler, whose values persist from call to call."`
	Log    bool     `yaml:"log" doc:"Grants log lines with a level. The output of the plugin is logged in any case."`
}

// any reports whether there is a grant.
func (a *allowConfig) any() bool { return len(a.Lookup) > 0 || a.KV || a.Log }

// limitsConfig contains the limits of a plugin. The error of a reached limit names it.
type limitsConfig struct {
	Batch   int         `yaml:"batch" default:"256" min:"1" max:"4096" doc:"Maximum number of deltas in a call."`
	Input   config.Size `yaml:"input" default:"16Mi" min:"64Ki" max:"256Mi" doc:"Maximum size of a call. A larger delta fails."`
	Output  config.Size `yaml:"output" default:"4Mi" min:"1Ki" max:"256Mi" doc:"Maximum size of an answer."`
	Events  int         `yaml:"events" default:"64" min:"1" max:"10000" doc:"Maximum number of events of a delta."`
	Message config.Size `yaml:"message" default:"4Ki" min:"16" max:"64Ki" doc:"Maximum size of an error message, a type or a subject. A longer message is truncated."`

	Timeout      time.Duration `yaml:"timeout" default:"30s" min:"1ms" doc:"Timeout of a call. A plugin that exceeds it is killed, and the batch is repeated."`
	StartTimeout time.Duration `yaml:"startTimeout" default:"30s" min:"1ms" doc:"Timeout from the start of the program until it has accepted its configuration."`
	StopTimeout  time.Duration `yaml:"stopTimeout" default:"5s" min:"1ms" doc:"Time to end after the request to stop. Then the program is killed with all its descendants."`
	Health       time.Duration `yaml:"health" default:"10s" min:"10ms" doc:"Interval and timeout of the health checks."`
	Breaker      int           `yaml:"breaker" default:"5" min:"0" doc:"Number of consecutive losses of the process, without an answer in between, after which the circuit breaker opens. 0: never."`

	Log     int         `yaml:"log" default:"100" min:"0" doc:"Maximum number of lines that the plugin logs per second. Further lines are counted."`
	LogLine config.Size `yaml:"logLine" default:"4Ki" min:"16" max:"64Ki" doc:"Maximum size of a line. A longer line is truncated."`
	KV      config.Size `yaml:"kv" default:"1Mi" min:"1Ki" max:"1Gi" doc:"Maximum size of the handler's store, including keys and 64 bytes per value."`
}

// Kind returns the kind of handler `process`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "process",
		Doc:  "Runs a program beside the router, without a sandbox. docs/PLUGINS.md describes how to write one.",
		Example: `command: [./plugins/enrich, -v]   # a file in a folder of -plugin-dir
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
env:                      # nothing of the router's environment unless it is said here
  PATH: {env: PATH}
  TOKEN: {file: /secrets/token}
  REGION: eu-1
tls: true                 # false for a plugin that is not written in Go
config: {threshold: 3}
fields: [metadata.labels, status.phase]   # absent: all
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

// Interfaces returns the version of the protocol that plugins speak.
func (kind) Interfaces() map[string]int {
	return map[string]int{"deltarouter.plugin.v1": pluginv1.Version}
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
	problems = fields.Problems(n, c.Fields)
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

// Fields returns the fields that a handler gets of each object, as keys; none: all.
func (k kind) Fields(node config.Node) [][]string { return fields.Keys(k.Accepted(node).Fields) }

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
	selected, err := fields.New(c.Fields)
	if err != nil {
		return nil, err
	}
	p := k.Programs(node)[0]
	s := &settings{handlerConfig: c, text: string(pluginConfig), node: node.At("config"), selected: selected, env: env, lines: lines.New(env.Log, c.Limits.Log, int(c.Limits.LogLine)), clock: timer.Of(env.Clock), memory: env.Count(plugins.GuestMemory)}
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

	text     string      // the plugin's configuration as JSON
	node     config.Node // and its position
	selected *fields.Set // of each object
	env      plugins.HandlerEnv
	program  *child.Program
	lines    *lines.Log
	clock    timer.Clock
	memory   plugins.Counter
}
