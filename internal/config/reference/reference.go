// Package reference generates docs/CONFIG.md and the JSON Schema of the configuration from the tags
// of its structs.
package reference

import (
	_ "embed" // example.yaml
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/config/scalar"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// example.yaml has every key; a test checks that.
//
//go:embed example.yaml
var example string

const referenceHead = `# Configuration

<!-- Made by make generate of the structs in pkg/config and of each kind's Config; what is written here by hand is lost. -->

The router reads one YAML file: ` + "`router -config config.yaml`" + `. ` + "`router check`" + ` finds every mistake in it at once, each with its line and column, and
` + "`router schema config`" + ` prints its JSON Schema, of which [config.schema.json](config.schema.json) is a copy. An editor that
knows the YAML language server completes keys, and explains them, in a file that begins so (the repository's files have the path of that copy):

` + "```yaml\n# yaml-language-server: $schema=config.schema.json\n```" + `

- A key that is not listed here is a mistake, and so is one with nothing after it. A key that is not there has its default.
- Where a list is expected, one element may stand without brackets: ` + "`to: out`" + `.
- ` + "`${NAME}` and `${NAME:-default}`" + ` are replaced by environment variables in every value but expressions; ` + "`$${`" + ` stands for a plain ` + "`${`" + `.
- Paths of files are relative to the folder of the configuration.
- ` + "`-config`" + ` may be a folder: its files ` + "`*.yaml` and `*.yml`, without `*_test.yaml`" + `, are one configuration. The router merges the mappings
  (` + "`sources`, `sinks`" + `) and joins the lists (` + "`routes`" + `) in the order of the file names. A name that two files have is a mistake; an anchor counts
  in its own file only. ` + "`-config -`" + ` is standard input. Without ` + "`-config`" + ` it is ` + "`$DELTAROUTER_CONFIG`, else `config.yaml`" + `.

| type | is written |
|---|---|
| duration | a number with its unit: ` + "`10ms`, `30s`, `5m`, `24h`" + ` |
| size | bytes: ` + "`512`; `64Ki`, `64Mi`, `8Gi`" + ` (powers of 1024); ` + "`10k`, `10M`, `1G`" + ` (powers of 1000) |
| count | a whole number: ` + "`500`, `10k`, `75M`" + ` |
| secret | ` + "`{file: path}` or `{env: NAME}`" + `, read again when it changes, or the value itself; never shown in logs |
| CEL | an expression, see [CEL.md](CEL.md). One that begins with ` + "`{`, `[`, `\"` or `'`" + `, or has ` + "`: ` or ` #`" + ` in it, stands in quotes or after ` + "`|`" + ` |

`

// Reference returns docs/CONFIG.md: all keys of the configuration with these kinds of handlers and
// sinks, in Markdown. Its result is deterministic.
func Reference(kinds config.Kinds) []byte {
	var b strings.Builder
	b.WriteString(referenceHead)
	t := reflect.TypeFor[config.Config]()
	var top []row
	for _, f := range tags.Of(t) {
		top = append(top, rowOf("", t.Field(f.Index).Type, f))
		top[len(top)-1].key = "[" + f.Key + "](#" + f.Key + ")"
	}
	top[0].key = "`version`"
	table(&b, top)
	for _, f := range tags.Of(t) {
		of := structOf(t.Field(f.Index).Type)
		if f.Key == "version" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```yaml\n%s```\n", f.Key, f.Doc, exampleOf(f.Key))
		if of == reflect.TypeFor[config.Component]() {
			components(&b, kindsOf(kinds, f.Key))
		} else if of != nil {
			b.WriteByte('\n')
			table(&b, rows("", of))
		}
	}
	return []byte(b.String())
}

// components writes a section for each kind.
func components(b *strings.Builder, kinds []config.Kind) {
	for _, kind := range kinds {
		fmt.Fprintf(b, "\n### %s\n\n%s\n", kind.Name, kind.Doc)
		all := rows("", reflect.TypeOf(kind.Config))
		if len(all) == 0 {
			fmt.Fprintf(b, "\nIt has no keys: `{%s: {}}`.\n", kind.Name)
			continue
		}
		fmt.Fprintf(b, "\n```yaml\n%s:\n%s```\n\n", kind.Name, indent(kind.Example))
		table(b, all)
	}
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// exampleOf returns the part of the example below a key.
func exampleOf(key string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(example) {
		if line[0] != ' ' && line[0] != '\n' {
			inside = strings.HasPrefix(line, key+":")
		}
		if inside && line != "\n" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// row describes a key.
type row struct{ key, kind, byDefault, meaning string }

// rows describes the keys of a struct, including those of nested structs.
func rows(prefix string, t reflect.Type) (all []row) {
	for _, f := range tags.Of(t) {
		if f.Self {
			continue
		}
		ft := t.Field(f.Index).Type
		all = append(all, rowOf(prefix, ft, f))
		if of := structOf(ft); of != nil {
			path := prefix + f.Key + "."
			if ft.Kind() == reflect.Slice {
				path = prefix + f.Key + "[]."
			}
			all = append(all, rows(path, of)...)
		}
	}
	return all
}

func rowOf(prefix string, t reflect.Type, f tags.Field) row {
	r := row{key: "`" + prefix + f.Key + "`", kind: kindOf(t, f), meaning: f.Doc}
	switch {
	case f.Required:
		r.byDefault = "*required*"
	case f.Default != "" && t.Kind() == reflect.Slice:
		r.byDefault = "`[" + strings.Join(strings.Fields(f.Default), ", ") + "]`"
	case f.Default != "":
		r.byDefault = "`" + f.Default + "`"
	case t.Kind() == reflect.Bool:
		r.byDefault = "`false`"
	case scalar.IsNumeric(t), t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[scalar.Size](), t == reflect.TypeFor[scalar.Count]():
		r.byDefault = "`0`"
	}
	return r
}

// structOf returns the struct into which a mapping, or the elements of a list or map, are decoded,
// or nil.
func structOf(t reflect.Type) reflect.Type {
	switch t {
	case reflect.TypeFor[config.Node](), reflect.TypeFor[config.Expr](), reflect.TypeFor[config.Filter](), reflect.TypeFor[config.Secret]():
		return nil
	case reflect.TypeFor[config.Debounce]():
		return reflect.TypeFor[config.DebounceForm]()
	}
	switch t.Kind() {
	case reflect.Struct:
		return t
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return structOf(t.Elem())
	}
	return nil
}

// kindOf describes the value of a key, including its bounds.
func kindOf(t reflect.Type, f tags.Field) string {
	switch t {
	case reflect.TypeFor[config.Node]():
		return "anything"
	case reflect.TypeFor[config.Expr]():
		return "CEL"
	case reflect.TypeFor[config.Filter]():
		return "CEL, or a mapping of sources to CEL"
	case reflect.TypeFor[config.Secret]():
		return "secret"
	case reflect.TypeFor[config.Debounce]():
		return "duration, or a mapping"
	case reflect.TypeFor[config.Component]():
		return "`{kind: configuration}`"
	case reflect.TypeFor[config.Target]():
		return "sink or `{route: NAME}`"
	case reflect.TypeFor[time.Duration]():
		return "duration" + boundsOf(f)
	case reflect.TypeFor[scalar.Size]():
		return "size" + boundsOf(f)
	case reflect.TypeFor[scalar.Count]():
		return "count" + boundsOf(f)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem(), f)
	case reflect.Struct:
		return "mapping"
	case reflect.Map:
		return "mapping of names to " + plural(kindOf(t.Elem(), f.Element()))
	case reflect.Slice:
		return "list of " + plural(kindOf(t.Elem(), f.Element()))
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if len(f.Enum) > 0 {
			return "`" + strings.Join(f.Enum, "`, `") + "`"
		}
		if f.Path != "" {
			return "path"
		}
		return "text"
	case reflect.Float32, reflect.Float64:
		return "number" + boundsOf(f)
	default:
		return "whole number" + boundsOf(f)
	}
}

func plural(kind string) string {
	switch kind {
	case "mapping", "secret":
		return kind + "s"
	}
	return strings.Replace(kind, "sink or", "sinks or", 1)
}

func boundsOf(f tags.Field) string {
	switch {
	case f.Max != "" && f.Max == f.Min:
		return ", " + f.Max
	case f.Max != "" && f.Min != "":
		return fmt.Sprintf(", %s to %s", f.Min, f.Max)
	case f.Max != "":
		return ", at most " + f.Max
	case f.Min != "" && f.Min != "0":
		return ", at least " + f.Min
	}
	return ""
}

func table(b *strings.Builder, all []row) {
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.key, r.kind, r.byDefault, strings.ReplaceAll(r.meaning, "|", `\|`))
	}
}

// kindsOf returns the kinds of the components below a key of [config.Config].
func kindsOf(k config.Kinds, key string) []config.Kind {
	switch key {
	case "handlers":
		return k.Handlers
	case "sinks":
		return k.Sinks
	}
	return nil
}
