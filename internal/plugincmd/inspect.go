package plugincmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fields"
	"github.com/deltarouter/deltarouter/internal/oci"
)

// inspectCommand describes a module.
func inspectCommand() cli.Command {
	return cli.Command{
		Name:    "inspect",
		Args:    "FILE | oci://HOST/REPOSITORY@DIGEST",
		Summary: "Show the interface of a module, and the grants and limits that it needs",
		Description: `
The module is not run. Its fuel is not part of the module: router plugin bench measures it.`,
		Examples: []cli.Example{
			{Line: "router plugin inspect dns.wasm", Text: "a file"},
			{Line: "router plugin inspect -o json oci://registry.example.com/team/dns:1.2", Text: "a module of a registry, in JSON"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &connection{}
			var output string
			c.flags(f)
			f.ChoiceVar(&output, "o", "text", []string{"text", "json"}, "the format of the output")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if len(args) != 1 {
					return cli.Mistakef("name a module, as in router plugin inspect dns.wasm")
				}
				r, err := c.inspect(ctx, s, args[0])
				if err != nil {
					return err
				}
				if output == "json" {
					return s.PrintJSON(r)
				}
				r.print(s)
				return nil
			}
		},
	}
}

// inspection describes a module.
type inspection struct {
	Module      string            `json:"module"`
	Digest      string            `json:"digest,omitempty"` // in a registry
	SHA256      string            `json:"sha256"`
	Size        int               `json:"size"`
	Kind        string            `json:"kind"` // of the handler that runs it; empty: none does
	Remedy      string            `json:"remedy,omitempty"`
	Memory      uint64            `json:"memory"`              // bytes at the start
	MaxMemory   uint64            `json:"maxMemory,omitempty"` // 0: unlimited
	Allow       []string          `json:"allow"`
	Limits      []string          `json:"limits"`
	Fields      []string          `json:"fields,omitempty"` // that it declares; empty: all
	Imports     []string          `json:"imports"`
	Exports     []string          `json:"exports"`
	Custom      []custom          `json:"customSections"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func (c *connection) inspect(ctx context.Context, s cli.Streams, name string) (*inspection, error) {
	r := &inspection{Module: name}
	var text []byte
	var err error
	if oci.IsRef(name) {
		var m oci.Module
		if r.Digest, m, err = c.fetch(ctx, name); err != nil {
			return nil, err
		}
		text, r.Annotations = m.Bytes, m.Annotations
	} else if text, err = cli.ReadFile(s, name); err != nil {
		return nil, cli.Invalid(err)
	}
	found, err := sectionsOf(text)
	if err != nil {
		return nil, cli.Invalid(fmt.Errorf("%s: %w", name, err))
	}
	declared, err := fields.Declared(text)
	if err != nil {
		return nil, cli.Invalid(fmt.Errorf("%s: %w", name, err))
	}
	r.SHA256, r.Size, r.Fields = sumOf(text), len(text), declared.Paths()
	r.describe(found)
	return r, nil
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// The defaults of limits.module and limits.memory, and the unit of memory.
const (
	defaultModule = 32 << 20
	defaultMemory = 64 << 20
	pageSize      = 64 << 10
)

func (r *inspection) describe(found *sections) {
	r.Imports, r.Exports, r.Custom = found.imports, found.exports, found.custom
	r.Memory, r.MaxMemory = found.memory*pageSize, found.maxMemory*pageSize
	r.Allow, r.Limits = grantsFor(found.imports), []string{}
	if r.Size > defaultModule {
		r.Limits = append(r.Limits, fmt.Sprintf("module: %dMi", (r.Size+1<<20-1)>>20))
	}
	if r.Memory > defaultMemory {
		r.Limits = append(r.Limits, fmt.Sprintf("memory: %dMi", (r.Memory+1<<20-1)>>20))
	}
	imports := func(prefix string) bool {
		return slices.ContainsFunc(found.imports, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	switch {
	case slices.Contains(found.exports, "rtr_handle"):
		r.Kind = "wasm"
	case imports("extism:host/"):
		r.Kind = "extism"
	case slices.Contains(found.exports, "_start"):
		r.Kind = "stdio"
	default:
		r.Remedy = "it exports neither rtr_handle nor _start, and imports nothing of Extism: build it with an SDK, see docs/PLUGINS.md"
	}
}

// grants are the keys of allow for imports.
var grants = []struct{ prefix, allow string }{
	{"rtr_v1.lookup", "lookup: [SOURCE.INDEX]"},
	{"rtr_v1.http", `http: [{host: "NAME:443"}]`},
	{"extism:host/env.http_request", `http: [{host: "NAME:443"}]`},
	{"rtr_v1.kv_", "kv: true"},
	{"extism:host/env.var_set", "kv: true"},
}

// grantsFor returns the grants without which a module with these imports is rejected.
func grantsFor(imports []string) []string {
	needed := []string{}
	for _, g := range grants {
		if slices.ContainsFunc(imports, func(name string) bool { return strings.HasPrefix(name, g.prefix) }) && !slices.Contains(needed, g.allow) {
			needed = append(needed, g.allow)
		}
	}
	return needed
}

func (r *inspection) print(s cli.Streams) {
	row := func(name, value string) {
		if value != "" {
			cli.Printf(s.Out, "%-10s %s\n", name, value)
		}
	}
	row("module", r.Module)
	row("digest", r.Digest)
	row("sha256", r.SHA256)
	row("size", Size(float64(r.Size)))
	row("kind", r.Kind)
	row("remedy", r.Remedy)
	memory := Size(float64(r.Memory))
	if r.MaxMemory > 0 {
		memory += ", at most " + Size(float64(r.MaxMemory))
	}
	row("memory", memory)
	row("allow", strings.Join(r.Allow, ", "))
	row("limits", strings.Join(r.Limits, ", "))
	row("fields", strings.Join(r.Fields, ", "))
	row("imports", strings.Join(r.Imports, ", "))
	row("exports", strings.Join(r.Exports, ", "))
	for _, c := range r.Custom {
		row("section", fmt.Sprintf("%s, %s", c.Name, Size(float64(c.Size))))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		row("note", key+": "+r.Annotations[key])
	}
}
