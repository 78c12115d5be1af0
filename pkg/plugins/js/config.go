package js

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/engine"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// handlerConfig is the configuration below `js:`.
type handlerConfig struct {
	File   string        `yaml:"file,path" doc:"File of the handler: a module whose default export is a function."`
	Source config.Script `yaml:"source" doc:"Code of the handler, instead of a file."`
	SHA256 string        `yaml:"sha256" doc:"SHA-256 of the file, in hexadecimal digits. A file with another content is not loaded. Required with the flag -require-digests."`
	Engine string        `yaml:"engine,path" doc:"File of the engine, quickjs.wasm of the npm package quickjs-wasi 3.6.2, for a router that was built without it."`
	Fresh  bool          `yaml:"fresh" doc:"Each delta finds the state after the start: no variable keeps a value from one delta to the next. Takes about 40 µs per delta."`
	Large  string        `yaml:"largeIntegers" default:"number" enum:"number text" doc:"What integers beyond 2^53 become, which a number of JavaScript does not have exactly. number: the nearest number, as JSON.parse does. text: a text with their digits, for BigInt(text)."`
	Config config.Node   `yaml:"config" doc:"Any value, which the handler gets as ctx.config."`
	Fields []string      `yaml:"fields" doc:"The fields that the handler gets of each object, as in status.phase or metadata.labels[\"app.kubernetes.io/name\"]. Fewer fields make a delta cheaper for a handler that decodes objects. apiVersion, kind, and name, namespace, uid and resourceVersion of the metadata are added. Absent or empty: all fields."`
	Allow  host.Allow    `yaml:"allow" doc:"The grants of the handler."`
	Limits abi.Limits    `yaml:"limits" doc:"The limits of the handler's instances."`
}

// Kind returns the kind of handler `js`.
func Kind() plugins.HandlerKind {
	return kind{plugins.Definition[handlerConfig]{
		Name: "js",
		Doc:  "Runs a function in JavaScript in a sandbox. docs/PLUGINS.md describes how to write one.",
		Example: `file: ./plugins/summary.js
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   # sha256sum ./plugins/summary.js; absent: any content
# In place of a file:
# source: |
#   export default (delta, ctx) => [{data: {pod: delta.name}}];
engine: ./quickjs.wasm    # only for a router that was built without it
fresh: false
largeIntegers: number
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
func (k kind) Files(node config.Node) (files []string) {
	c := k.Accepted(node)
	for _, file := range []string{c.File, c.Engine} {
		if file != "" {
			files = append(files, file)
		}
	}
	return files
}

// Remembers implements [plugins.Rememberer].
func (k kind) Remembers(node config.Node) bool { return k.Accepted(node).Allow.KV }

// leastMemory is the memory that the engine needs.
const leastMemory = 4 << 20

// Validate implements [config.Validator].
func (c *handlerConfig) Validate(n config.Node) config.Problems {
	var problems config.Problems
	inline, inFile := slices.Contains(n.Keys(), "source"), slices.Contains(n.Keys(), "file")
	switch {
	case !inline && !inFile:
		problems = append(problems, n.Problemf("file is missing: name the file of the handler, or write its code after `source: |`"))
	case inline && inFile:
		problems = append(problems, n.At("source").Problemf("stands beside file: remove one of them"))
	}
	if sum, err := hex.DecodeString(c.SHA256); c.SHA256 != "" && (err != nil || len(sum) != sha256.Size) {
		problems = append(problems, n.At("sha256").Problemf("must be %d hexadecimal digits, as sha256sum prints them", 2*sha256.Size))
	} else if c.SHA256 != "" && inline {
		problems = append(problems, n.At("sha256").Problemf("is the hash of a file: remove it, because the code is part of the configuration"))
	} else if c.SHA256 == "" && !inline && n.Policy().RequireDigests {
		problems = append(problems, n.Problemf("sha256 is missing: the router was started with -require-digests; write what sha256sum prints for the file"))
	}
	if c.Limits.Memory < leastMemory {
		problems = append(problems, n.At("limits").At("memory").Problemf("must be at least 4Mi: the JavaScript engine needs that much"))
	}
	return slices.Concat(problems, fields.Problems(n, c.Fields), guest.CheckConfig(n, c.Config))
}

// Fields returns the fields that a handler gets of each object, as keys; none: all.
func (k kind) Fields(node config.Node) [][]string { return fields.Keys(k.Accepted(node).Fields) }

// Load implements [plugins.Loader]. It evaluates the code of the handler.
func (k kind) Load(ctx context.Context, node config.Node, env plugins.HandlerEnv) config.Problems {
	h, err := k.Open(ctx, node, env)
	if err == nil {
		err = h.Close(ctx)
	}
	if err == nil {
		return nil
	}
	at := node.At("file")
	if at.IsZero() {
		at = node.At("source")
	}
	return config.Problems{at.Problemf("%v", err)}
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
	handlerConfig, err := c.Config.JSON()
	if err != nil {
		return nil, err
	}
	code, err := c.code()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(code.text))
	digest := hex.EncodeToString(sum[:])
	if c.SHA256 != "" && !strings.EqualFold(digest, c.SHA256) {
		return nil, fmt.Errorf("%s: its content differs from sha256: its SHA-256 is %s", c.File, digest)
	}
	module, err := loadEngine(c.Engine)
	if err != nil {
		return nil, err
	}
	h, err := guest.New(ctx, guest.Description{Kind: "js", Digest: digest, Fields: c.Fields}, engine.Settings{
		Module: module, Protocol: protocol{code: code, fresh: c.Fresh, large: c.Large}, Config: string(handlerConfig), Limits: c.Limits,
		Host: host.New(c.Allow, string(handlerConfig), &c.Limits, env), Env: env, Shared: shared(),
	})
	if err != nil {
		return nil, err
	}
	env.Log.Info("JavaScript loaded", "file", code.file, "sha256", digest)
	return h, nil
}

// code reads the code of the handler.
func (c *handlerConfig) code() (code, error) {
	text := c.Source.Text
	of := code{text: text, file: inlineFile, where: c.Source}
	if c.File != "" {
		f, err := os.Open(c.File)
		if err != nil {
			return code{}, fmt.Errorf("%s cannot be read: %w", c.File, fileerr.Cause(err))
		}
		defer f.Close()
		read, err := io.ReadAll(io.LimitReader(f, int64(c.Limits.Module)+1))
		if err != nil {
			return code{}, fmt.Errorf("%s cannot be read: %w", c.File, fileerr.Cause(err))
		}
		of = code{text: string(read), file: c.File}
	}
	switch {
	case len(of.text) > int(c.Limits.Module):
		return code{}, fmt.Errorf("%s: larger than %d bytes: raise limits.module", of.file, int64(c.Limits.Module))
	case !utf8.ValidString(of.text), strings.Contains(of.text, "\x00"):
		return code{}, fmt.Errorf("%s: it is no text in UTF-8", of.file)
	}
	return of, nil
}
