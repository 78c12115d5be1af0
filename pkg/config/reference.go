package config

import (
	_ "embed" // example.yaml
	"fmt"
	"reflect"
	"strings"
	"time"
)

// example.yaml has every key; a test sees to it.
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

| type | is written |
|---|---|
| duration | a number with its unit: ` + "`10ms`, `30s`, `5m`, `24h`" + ` |
| size | bytes: ` + "`512`; `64Ki`, `64Mi`, `8Gi`" + ` (powers of 1024); ` + "`10k`, `10M`, `1G`" + ` (powers of 1000) |
| count | a whole number: ` + "`500`, `10k`, `75M`" + ` |
| secret | ` + "`{file: path}` or `{env: NAME}`" + `, read again when it changes, or the value itself; never shown in logs |
| CEL | an expression, see [CEL.md](CEL.md). One that begins with ` + "`{`, `[`, `\"` or `'`" + `, or has ` + "`: ` or ` #`" + ` in it, stands in quotes or after ` + "`|`" + ` |

`

// Reference returns docs/CONFIG.md: all keys of the configuration with these kinds of handlers and sinks, in Markdown. It is the same in
// every call.
func Reference(kinds Kinds) []byte {
	var b strings.Builder
	b.WriteString(referenceHead)
	t := reflect.TypeFor[Config]()
	var top []row
	for _, f := range fieldsOf(t) {
		top = append(top, rowOf("", t.Field(f.index).Type, f))
		top[len(top)-1].key = "[" + f.key + "](#" + f.key + ")"
	}
	top[0].key = "`version`"
	table(&b, top)
	for _, f := range fieldsOf(t) {
		of := structOf(t.Field(f.index).Type)
		if f.key == "version" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```yaml\n%s```\n", f.key, f.doc, exampleOf(f.key))
		if of == reflect.TypeFor[Component]() {
			components(&b, kinds.of(f.key))
		} else if of != nil {
			b.WriteByte('\n')
			table(&b, rows("", of))
		}
	}
	return []byte(b.String())
}

// components writes a section for each kind.
func components(b *strings.Builder, kinds []Kind) {
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

// rows describes the keys of a struct, those of structs in it included.
func rows(prefix string, t reflect.Type) (all []row) {
	for _, f := range fieldsOf(t) {
		if f.self {
			continue
		}
		ft := t.Field(f.index).Type
		all = append(all, rowOf(prefix, ft, f))
		if of := structOf(ft); of != nil {
			path := prefix + f.key + "."
			if ft.Kind() == reflect.Slice {
				path = prefix + f.key + "[]."
			}
			all = append(all, rows(path, of)...)
		}
	}
	return all
}

func rowOf(prefix string, t reflect.Type, f field) row {
	r := row{key: "`" + prefix + f.key + "`", kind: kindOf(t, f), meaning: f.doc}
	switch {
	case f.required:
		r.byDefault = "*required*"
	case f.byDefault != "" && t.Kind() == reflect.Slice:
		r.byDefault = "`[" + strings.Join(strings.Fields(f.byDefault), ", ") + "]`"
	case f.byDefault != "":
		r.byDefault = "`" + f.byDefault + "`"
	case t.Kind() == reflect.Bool:
		r.byDefault = "`false`"
	case isNumeric(t), t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[Size](), t == reflect.TypeFor[Count]():
		r.byDefault = "`0`"
	}
	return r
}

// structOf returns the struct that a mapping, or the elements of a list or map, are decoded into; nil: there is none.
func structOf(t reflect.Type) reflect.Type {
	switch t {
	case reflect.TypeFor[Node](), reflect.TypeFor[Expr](), reflect.TypeFor[Filter](), reflect.TypeFor[Secret]():
		return nil
	case reflect.TypeFor[Debounce]():
		return reflect.TypeFor[debounceForm]()
	}
	switch t.Kind() {
	case reflect.Struct:
		return t
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return structOf(t.Elem())
	}
	return nil
}

// kindOf says what a key takes, its bounds included.
func kindOf(t reflect.Type, f field) string {
	switch t {
	case reflect.TypeFor[Node]():
		return "anything"
	case reflect.TypeFor[Expr]():
		return "CEL"
	case reflect.TypeFor[Filter]():
		return "CEL, or a mapping of sources to CEL"
	case reflect.TypeFor[Secret]():
		return "secret"
	case reflect.TypeFor[Debounce]():
		return "duration, or a mapping"
	case reflect.TypeFor[Component]():
		return "`{kind: configuration}`"
	case reflect.TypeFor[time.Duration]():
		return "duration" + boundsOf(f)
	case reflect.TypeFor[Size]():
		return "size" + boundsOf(f)
	case reflect.TypeFor[Count]():
		return "count" + boundsOf(f)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem(), f)
	case reflect.Struct:
		return "mapping"
	case reflect.Map:
		return "mapping of names to " + plural(kindOf(t.Elem(), f.element()))
	case reflect.Slice:
		return "list of " + plural(kindOf(t.Elem(), f.element()))
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		if len(f.enum) > 0 {
			return "`" + strings.Join(f.enum, "`, `") + "`"
		}
		if f.path {
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
	return kind
}

func boundsOf(f field) string {
	switch {
	case f.max != "" && f.max == f.min:
		return ", " + f.max
	case f.max != "" && f.min != "":
		return fmt.Sprintf(", %s to %s", f.min, f.max)
	case f.max != "":
		return ", at most " + f.max
	case f.min != "" && f.min != "0":
		return ", at least " + f.min
	}
	return ""
}

func table(b *strings.Builder, all []row) {
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", r.key, r.kind, r.byDefault, strings.ReplaceAll(r.meaning, "|", `\|`))
	}
}
