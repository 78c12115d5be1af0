package stdio

import (
	"context"
	"encoding/hex"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/files"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/module"
)

// handlerConfig is the configuration below `stdio:`.
type handlerConfig struct {
	Source module.Source     `yaml:",inline"`
	Args   []string          `yaml:"args" doc:"Arguments of the command."`
	Env    map[string]string `yaml:"env" doc:"Environment of the command. Nothing else is in it, but for the variable DELTAROUTER_CONFIG if there is a config."`
	Files  []mount           `yaml:"files" doc:"Files that the command may read, 64 MiB and 10,000 files at most. They are copied into memory when the handler starts."`
	Config config.Node       `yaml:"config" doc:"Any value, which the command gets as JSON in the environment variable DELTAROUTER_CONFIG."`
	Fields []string          `yaml:"fields" doc:"The fields that the command gets of each object, as in status.phase or metadata.labels[\"app.kubernetes.io/name\"]. Fewer fields make a delta cheaper for a handler that decodes objects. apiVersion, kind, and name, namespace, uid and resourceVersion of the metadata are added. Absent: those that the module declares, or all fields. An empty list: all fields."`
	Allow  allow             `yaml:"allow" doc:"The grants of the command."`
	Limits abi.Limits        `yaml:"limits" doc:"The limits of the command's instances."`
}

// mount is an element of `files:`.
type mount struct {
	File    string `yaml:"file,path" doc:"One file."`
	Folder  string `yaml:"folder,path" doc:"A folder with all that it contains. Links must not leave it."`
	Archive string `yaml:"archive,path" doc:"An archive, which is unpacked: zip, tar, or tar compressed by gzip. It must not contain links."`
	SHA256  string `yaml:"sha256" doc:"SHA-256 of the file or archive, in hexadecimal digits. Required with the flag -require-digests, which permits no folder."`
	To      string `yaml:"to,required" doc:"Absolute path of the file, or of the folder with the content, for the command."`
}

// allow contains the grants of a command.
type allow struct {
	Clock  bool `yaml:"clock" doc:"Grants the real time. Otherwise the clock shows when the router saw the delta."`
	Random bool `yaml:"random" doc:"Grants real random numbers. Otherwise they depend on the delta."`
}

// configVariable is the environment variable with the configuration of a command.
const configVariable = "DELTAROUTER_CONFIG"

// Kind returns the kind of handler `stdio`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "stdio",
		Doc:  "Runs a command in a sandbox: a WebAssembly module with a main function, which reads one delta per line and prints one answer per line.",
		Example: module.Example + `args: [/app/handler.py, --verbose]
env: {PYTHONPATH: /lib}
files:
  - {file: ./handler.py, sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, to: /app/handler.py}
  - {folder: ./lib, to: /lib}
  - {archive: ./zones.tar.gz, to: /data}
config: {threshold: 3}    # the command gets this as JSON in the environment variable DELTAROUTER_CONFIG
fields: [metadata.labels, status.phase]   # absent: all, or those that the module declares
allow:                    # nothing unless it is said here
  clock: false
  random: false
limits:                   # the defaults are right for most commands
  module: 32Mi
  memory: 64Mi
  instances: 4
  calls: 100k
  fuel: 75M
  initFuel: 2G
  timeout: 1s
  initTimeout: 5s
  output: 1Mi
  events: 64
  message: 4Ki
  log: 100
  logLine: 4Ki
`,
	}}
}

type kind struct {
	plugins.Definition[handlerConfig]
}

var _ interface {
	plugins.FileReader
	plugins.Loader
} = kind{}

// Files implements [plugins.FileReader].
func (k kind) Files(node config.Node) []string {
	c := k.Accepted(node)
	all := c.Source.Files()
	for _, m := range c.mounts() {
		all = append(all, m.Sources()...)
	}
	return all
}

// mounts returns the files in the form of package files.
func (c *handlerConfig) mounts() (all []files.Mount) {
	for _, m := range c.Files {
		all = append(all, files.Mount{File: m.File, Folder: m.Folder, Archive: m.Archive, SHA256: m.SHA256, To: m.To})
	}
	return all
}

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) config.Problems {
	problems := append(c.Source.Validate(n), fields.Problems(n, c.Fields)...)
	for i, item := range n.At("args").Items() {
		if i < len(c.Args) && strings.Contains(c.Args[i], "\x00") {
			problems = append(problems, item.Problemf("contains a zero byte"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(c.Env[name], "\x00"):
			problems = append(problems, n.At("env").Problemf("%q is no environment variable: a name has no =, and neither name nor value a zero byte", name))
		case name == configVariable:
			problems = append(problems, n.At("env").At(name).Problemf("is the variable with `config`: write the value there"))
		}
	}
	for _, key := range n.At("limits").Keys() {
		if why, of := otherKinds()[key]; of {
			problems = append(problems, n.At("limits").At(key).Problemf("is no limit of a command: %s; remove it", why))
		}
	}
	return append(problems, guest.CheckConfig(n, c.Config)...)
}

// otherKinds returns the limits that only other kinds of handlers have, with the reason.
func otherKinds() map[string]string {
	return map[string]string{
		"batch": "it gets one delta at a time",
		"input": "it gets one delta at a time",
		"kv":    "it has no store",
	}
}

// Validate implements [config.Validator].
func (m *mount) Validate(n config.Node) (problems config.Problems) {
	given := 0
	for _, name := range []string{m.File, m.Folder, m.Archive} {
		if name != "" {
			given++
		}
	}
	if given != 1 {
		problems = append(problems, n.Problemf("must have one of file, folder and archive"))
	}
	if m.To != "" && (!strings.HasPrefix(m.To, "/") || path.Clean(m.To) != m.To) {
		problems = append(problems, n.At("to").Problemf("must be an absolute path without . and .., such as /data"))
	} else if m.To == "/" && m.File != "" {
		problems = append(problems, n.At("to").Problemf("is the path of the file itself, such as /data/zones.json"))
	}
	sum, err := hex.DecodeString(m.SHA256)
	strict := n.Policy().RequireDigests
	switch {
	case m.SHA256 != "" && (err != nil || len(sum) != 32):
		problems = append(problems, n.At("sha256").Problemf("must be 64 hexadecimal digits, as sha256sum prints them"))
	case m.SHA256 != "" && m.Folder != "":
		problems = append(problems, n.At("sha256").Problemf("a folder has none: pack it into an archive, or remove sha256"))
	case strict && m.Folder != "":
		problems = append(problems, n.At("folder").Problemf("has no SHA-256, and the router was started with -require-digests: pack it into an archive"))
	case strict && m.SHA256 == "":
		problems = append(problems, n.Problemf("sha256 is missing: the router was started with -require-digests; write what sha256sum prints for the file"))
	}
	return problems
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
	program, err := c.program()
	if err != nil {
		return nil, err
	}
	c.Limits.Batch = 1 // so that a failure, the fuel and the time of a delta are its own
	return c.Source.Open(ctx, c.Limits.Module, env, func(ctx context.Context, m module.Content) (plugins.Handler, error) {
		surroundings := host.New(host.Allow{Clock: c.Allow.Clock, Random: c.Allow.Random}, "null", &c.Limits, env)
		surroundings.Command(program)
		return guest.New(ctx, guest.Description{Kind: "stdio", Digest: m.Digest, Fields: c.Fields}, engine.Settings{Module: m.Bytes, Protocol: protocol{}, Config: "null", Limits: c.Limits, Host: surroundings, Env: env})
	})
}

// program returns the surroundings of the command.
func (c *handlerConfig) program() (*host.Program, error) {
	tree, err := files.Load(c.mounts())
	if err != nil {
		return nil, err
	}
	p := &host.Program{Args: c.Args, Files: tree}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		p.Env = append(p.Env, name+"="+c.Env[name])
	}
	if !c.Config.IsZero() {
		text, err := c.Config.JSON()
		if err != nil {
			return nil, err
		}
		p.Env = append(p.Env, configVariable+"="+string(text))
	}
	return p, nil
}
