package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/config/scalar"
	"github.com/deltarouter/deltarouter/internal/config/tags"
	"github.com/deltarouter/deltarouter/internal/similar"
)

// Validator is implemented by a struct with rules that tags cannot express. [Node.Decode] calls it
// on the pointer, after it has decoded the struct from n. A field with a problem has its default or
// the zero value then.
type Validator interface {
	Validate(n Node) Problems
}

// unmarshaler is implemented by types of this package with a decoder of their own.
type unmarshaler interface{ unmarshal(n Node) Problems }

// Decode decodes the node into the value that a pointer refers to, and returns all problems. The
// package comment describes types and tags. Values without a problem are decoded even if others
// have one.
func (n Node) Decode(into any) Problems {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Problems{n.Problemf("the router cannot decode into %T: this is a bug of the router", into)}
	}
	var d decoder
	d.value(n, v.Elem(), tags.Field{})
	return d.problems
}

type decoder struct{ problems Problems }

func (d *decoder) problemf(n Node, format string, args ...any) {
	d.problems = append(d.problems, n.Problemf(format, args...))
}

// value decodes n into v. f is the field that v belongs to.
func (d *decoder) value(n Node, v reflect.Value, f tags.Field) {
	if len(d.problems) >= maxProblems {
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *Node:
		*into = n
		return
	case unmarshaler:
		d.problems = append(d.problems, into.unmarshal(n)...)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), f)
		if isBroken(v.Elem()) {
			v.SetZero()
		}
	case reflect.Struct:
		d.structure(n, v)
	case reflect.Map:
		d.mapping(n, v, f)
	case reflect.Slice:
		d.list(n, v, f)
	default:
		d.scalar(n, v, f)
	}
}

// structure decodes a mapping whose keys are fields. If n is absent, it sets the defaults.
func (d *decoder) structure(n Node, v reflect.Value) {
	if n.isNull() {
		d.problemf(n, "has no value: write its keys or {}, or remove it")
		n.yaml = nil
	}
	if n.yaml != nil && n.yaml.Kind != yaml.MappingNode {
		d.problemf(n, "must be a mapping, not %s", n.describe())
		return
	}
	fields := tags.Of(v.Type())
	guessed := d.unknownKeys(n, fields)
	for _, f := range fields {
		fv := v.FieldByIndex(f.Index)
		child := n.At(f.Key)
		switch {
		case f.Self:
			d.value(n, fv, f)
		case child.yaml != nil:
			d.present(child, fv, f)
		case f.Required && n.yaml != nil && !slices.Contains(guessed, f.Key):
			d.problemf(n, "%s is missing%s", f.Key, writeOnly(f))
		case f.Default != "":
			d.byDefault(child, fv, f)
		case fv.Kind() == reflect.Struct && !IsScalar(fv.Type()):
			d.value(child, fv, f)
		}
	}
	if validator, ok := v.Addr().Interface().(Validator); ok && n.yaml != nil {
		d.problems = append(d.problems, validator.Validate(n)...)
	}
}

// writeOnly completes the message about a missing key that has one possible value.
func writeOnly(f tags.Field) string {
	if f.Min == "" || f.Min != f.Max {
		return ""
	}
	return fmt.Sprintf(": write %s: %s", f.Key, f.Min)
}

// present decodes a field that exists. If the decoding fails, the field gets its default, so that a
// rule that compares it with another field does not report a second problem.
func (d *decoder) present(n Node, v reflect.Value, f tags.Field) {
	before := len(d.problems)
	d.value(n, v, f)
	if len(d.problems) > before && f.Default != "" && v.IsZero() {
		var ignored decoder
		ignored.byDefault(n, v, f)
	}
}

// unknownKeys reports the keys that are not fields. It returns the fields that these keys probably
// mean.
func (d *decoder) unknownKeys(n Node, fields []tags.Field) (guessed []string) {
	var known []string
	for _, f := range fields {
		if !f.Self {
			known = append(known, f.Key)
		}
	}
	for _, e := range n.entries() {
		if slices.Contains(known, e.key) {
			continue
		}
		if len(d.problems) >= maxProblems {
			break
		}
		key := e.value
		key.at = e.at
		if remedy := former(key.path); remedy != "" {
			d.problemf(key, "is no key any more: %s", remedy)
			continue
		}
		d.problemf(key, "unknown key%s", similar.Suggest(e.key, known))
		if near, ok := similar.Nearest(e.key, known); ok {
			guessed = append(guessed, near)
		}
	}
	return guessed
}

// former returns the remedy for a key that only earlier versions had; empty: path is none.
func former(path string) (remedy string) {
	switch owner, key, _ := strings.Cut(path, "."); {
	case path == "plugins":
		return "start the router with -plugin-dir FOLDER for each folder of programs, and remove it"
	case strings.HasPrefix(owner, "routes[") && key == "was":
		return "if the router has not run with this name yet, write id in its place; else remove it"
	case owner == "sinks" && strings.HasSuffix(key, ".file.compress"):
		return "remove it and set maxFiles: 0, so that logrotate rotates and compresses the file"
	}
	return ""
}

// byDefault sets a field to the default of its tag.
func (d *decoder) byDefault(n Node, v reflect.Value, f tags.Field) {
	if err := scalar.SetDefault(v, f.Default); err != nil {
		d.problemf(n, "the default must be %v: this is a bug of the router", err)
	}
}

func (d *decoder) mapping(n Node, v reflect.Value, f tags.Field) {
	switch {
	case n.isNull() && f.Required:
		d.problemf(n, "has no value: write a mapping of names to values")
		return
	case n.isNull():
		d.problemf(n, "has no value: write a mapping of names to values, or remove it")
		return
	case n.yaml != nil && n.yaml.Kind != yaml.MappingNode:
		d.problemf(n, "must be a mapping of names to values, not %s", n.describe())
		return
	}
	entries := n.entries()
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, element, f.Element())
		if isBroken(element) {
			continue
		}
		v.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), element)
	}
	d.bounds(n, f, v.Len())
}

func (d *decoder) list(n Node, v reflect.Value, f tags.Field) {
	switch {
	case n.IsZero() && f.Required:
		d.problemf(n, "has no value: write a list")
		return
	case n.IsZero():
		d.problemf(n, "has no value: write a list, or remove the key")
		return
	case !mayStandAlone(n, v.Type().Elem()):
		d.problemf(n, "must be a list, not %s: begin each element with `- `", n.describe())
		return
	}
	items := n.Items()
	if n.yaml.Kind == yaml.MappingNode {
		items = []Node{n}
	}
	list := reflect.MakeSlice(v.Type(), 0, len(items))
	for _, item := range items {
		element := reflect.New(v.Type().Elem()).Elem()
		if d.value(item, element, f.Element()); !isBroken(element) {
			list = reflect.Append(list, element)
		}
	}
	v.Set(list)
	d.bounds(n, f, len(items))
}

// isBroken reports whether a value is an expression with a problem. Such an expression is left out,
// because its compilation would report a second problem.
func isBroken(v reflect.Value) bool {
	switch e := v.Interface().(type) {
	case Expr:
		return e.Text == ""
	case Filter:
		return e.Text == "" && len(e.By) == 0
	}
	return false
}

// mayStandAlone reports whether a node is a list, or a single element that the configuration may
// write instead of a list.
func mayStandAlone(n Node, element reflect.Type) bool {
	switch n.yaml.Kind {
	case yaml.MappingNode:
		return element == reflect.TypeFor[Target]()
	case yaml.ScalarNode:
		return IsScalar(element)
	}
	return true
}

// IsScalar reports whether values of a type can be written as scalars. A single scalar may replace
// a list with one element.
func IsScalar(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Expr](), reflect.TypeFor[Script](), reflect.TypeFor[Secret](), reflect.TypeFor[Node](), reflect.TypeFor[Target]():
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return false
	}
	return true
}

// bounds checks the length of a list or map.
func (d *decoder) bounds(n Node, f tags.Field, length int) {
	if low, err := strconv.Atoi(f.Min); err == nil && length < low {
		if length == 0 && f.Required {
			d.problemf(n, "is empty: it needs at least one element")
			return
		}
		if length == 0 {
			d.problemf(n, "is empty: write an element, or remove the key")
			return
		}
		d.problemf(n, "needs at least %d elements, and has %d", low, length)
	}
	if high, err := strconv.Atoi(f.Max); err == nil && length > high {
		d.problemf(n, "has %d elements, and at most %d are possible", length, high)
	}
}

// scalar decodes text, numbers and booleans.
func (d *decoder) scalar(n Node, v reflect.Value, f tags.Field) {
	if !n.IsZero() && n.yaml.Kind != yaml.ScalarNode {
		d.problemf(n, "must be %s, not %s", scalar.Describe(v.Type()), n.describe())
		return
	}
	text, problems := n.text()
	if len(problems) > 0 {
		d.problems = append(d.problems, problems...)
		return
	}
	if n.isQuoted() && text == n.yaml.Value && scalar.IsNumeric(v.Type()) {
		d.problemf(n, "must be %s, not text: remove the quotes", scalar.Describe(v.Type()))
		return
	}
	if err := scalar.Set(v, text); err != nil {
		d.problemf(n, "must be %v, not %q", err, n.yaml.Value)
		return
	}
	if v.Kind() == reflect.String {
		d.checkString(n, v, f)
		return
	}
	if only := scalar.Bound(v.Type(), f.Min); only.IsValid() && f.Min == f.Max {
		if !v.Equal(only) {
			d.problemf(n, "must be %s, not %s: this router knows no other", f.Min, n.yaml.Value)
		}
		return
	}
	if low := scalar.Bound(v.Type(), f.Min); low.IsValid() && scalar.Less(v, low) {
		d.problemf(n, "must be at least %s, not %s", f.Min, n.yaml.Value)
	}
	if high := scalar.Bound(v.Type(), f.Max); high.IsValid() && scalar.Less(high, v) {
		d.problemf(n, "must be at most %s, not %s", f.Max, n.yaml.Value)
	}
}

// checkString checks a text by the tags of its field.
func (d *decoder) checkString(n Node, v reflect.Value, f tags.Field) {
	text := v.String()
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		hint := ""
		if near, ok := similar.Nearest(text, f.Enum); ok {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		d.problemf(n, "must be %s, not %q%s", tags.Or(f.Enum), n.yaml.Value, hint)
	}
	if f.Path != "" && text != "" {
		d.path(n, v, f.Path)
	}
}

// path decodes the path of a file, and checks it against the policy.
func (d *decoder) path(n Node, v reflect.Value, class string) {
	if class == tags.PathModule && strings.HasPrefix(v.String(), "oci://") {
		return
	}
	if !strings.Contains(v.String(), "://") {
		v.SetString(n.File(v.String()))
	}
	policy := n.Policy()
	if err := policy.check(class, v.String()); err != nil {
		d.problemf(n, "%v", err)
	}
}

// hasKey reports whether a struct of the configuration has a key.
func hasKey[T any](key string) bool {
	return slices.ContainsFunc(tags.Of(reflect.TypeFor[T]()), func(f tags.Field) bool { return f.Key == key })
}
