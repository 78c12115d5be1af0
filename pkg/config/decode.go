package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Validator is implemented by a struct that has rules beyond its tags. [Node.Decode] calls it, on the pointer, when the struct was
// decoded from n. A field that had a problem of its own has its default or the zero value.
type Validator interface {
	Validate(n Node) Problems
}

// unmarshaler is a type of this package that is not decoded by its kind.
type unmarshaler interface{ unmarshal(n Node) Problems }

// Decode fills in what a pointer points to and returns every problem at once. See the package comment for types and tags. After
// a problem, into holds what could be decoded.
func (n Node) Decode(into any) Problems {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Problems{n.Problemf("the router cannot decode into %T: this is a bug of the router", into)}
	}
	var d decoder
	d.value(n, v.Elem(), field{})
	return d.problems
}

type decoder struct{ problems Problems }

func (d *decoder) problemf(n Node, format string, args ...any) {
	d.problems = append(d.problems, n.Problemf(format, args...))
}

// value decodes n into v, by the rules of the field that v is, or is an element of.
func (d *decoder) value(n Node, v reflect.Value, f field) {
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

// structure decodes a mapping whose keys are fields. Of an absent node it takes the defaults.
func (d *decoder) structure(n Node, v reflect.Value) {
	if !n.IsZero() && n.yaml.Kind != yaml.MappingNode {
		d.problemf(n, "must be a mapping, not %s", n.describe())
		return
	}
	fields := fieldsOf(v.Type())
	guessed := d.unknownKeys(n, fields)
	for _, f := range fields {
		fv := v.Field(f.index)
		child := n.At(f.key)
		switch {
		case f.self:
			d.value(n, fv, f)
		case child.yaml != nil:
			d.present(child, fv, f)
		case f.required && n.yaml != nil && !slices.Contains(guessed, f.key):
			d.problemf(n, "%s is missing", f.key)
		case f.byDefault != "":
			d.byDefault(child, fv, f)
		case fv.Kind() == reflect.Struct && !isScalar(fv.Type()):
			d.value(child, fv, f)
		}
	}
	if validator, ok := v.Addr().Interface().(Validator); ok && n.yaml != nil {
		d.problems = append(d.problems, validator.Validate(n)...)
	}
}

// present decodes a field that is there. One that cannot be decoded falls back to its default, so that a rule which compares it
// with another field does not complain about it too.
func (d *decoder) present(n Node, v reflect.Value, f field) {
	before := len(d.problems)
	d.value(n, v, f)
	if len(d.problems) > before && f.byDefault != "" && v.IsZero() {
		var ignored decoder
		ignored.byDefault(n, v, f)
	}
}

// unknownKeys reports the keys that are no field, and returns the fields that they were probably meant to be.
func (d *decoder) unknownKeys(n Node, fields []field) (guessed []string) {
	var known []string
	for _, f := range fields {
		if !f.self {
			known = append(known, f.key)
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
		d.problemf(key, "unknown key%s", Suggest(e.key, known))
		if near, ok := nearest(e.key, known); ok {
			guessed = append(guessed, near)
		}
	}
	return guessed
}

// byDefault sets a field that is absent, or cannot be decoded, to the default of its tag.
func (d *decoder) byDefault(n Node, v reflect.Value, f field) {
	words := []string{f.byDefault}
	into := v
	if v.Kind() == reflect.Slice {
		words = strings.Fields(f.byDefault)
		into = reflect.New(v.Type().Elem()).Elem()
	}
	for _, word := range words {
		if err := setScalar(into, word); err != nil {
			d.problemf(n, "the default must be %v: this is a bug of the router", err)
			return
		}
		if v.Kind() == reflect.Slice {
			v.Set(reflect.Append(v, into))
		}
	}
}

func (d *decoder) mapping(n Node, v reflect.Value, f field) {
	if !n.IsZero() && n.yaml.Kind != yaml.MappingNode {
		d.problemf(n, "must be a mapping of names to values, not %s", n.describe())
		return
	}
	entries := n.entries()
	v.Set(reflect.MakeMapWithSize(v.Type(), len(entries)))
	for _, e := range entries {
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, element, f.element())
		if isBroken(element) {
			continue
		}
		v.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), element)
	}
	d.bounds(n, f, v.Len())
}

func (d *decoder) list(n Node, v reflect.Value, f field) {
	switch {
	case n.IsZero() && f.required:
		d.problemf(n, "has no value: write a list")
		return
	case n.IsZero():
		d.problemf(n, "has no value: write a list, or remove the key")
		return
	case n.yaml.Kind == yaml.MappingNode, n.yaml.Kind == yaml.ScalarNode && !isScalar(v.Type().Elem()):
		d.problemf(n, "must be a list, not %s: begin each element with `- `", n.describe())
		return
	}
	items := n.Items()
	list := reflect.MakeSlice(v.Type(), 0, len(items))
	for _, item := range items {
		element := reflect.New(v.Type().Elem()).Elem()
		if d.value(item, element, f.element()); !isBroken(element) {
			list = reflect.Append(list, element)
		}
	}
	v.Set(list)
	d.bounds(n, f, len(items))
}

// isBroken reports whether a value is an expression that was refused. It is left out: who compiles it would complain once more.
func isBroken(v reflect.Value) bool {
	switch e := v.Interface().(type) {
	case Expr:
		return e.Text == ""
	case Filter:
		return e.Text == "" && len(e.By) == 0
	}
	return false
}

// isScalar reports whether values of a type are written as scalars, so that one can stand for a list of one.
func isScalar(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Expr](), reflect.TypeFor[Secret](), reflect.TypeFor[Node]():
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return false
	}
	return true
}

// bounds checks the length of a list or map.
func (d *decoder) bounds(n Node, f field, length int) {
	if low, err := strconv.Atoi(f.min); err == nil && length < low {
		if length == 0 && f.required {
			d.problemf(n, "is empty: it needs at least one element")
			return
		}
		if length == 0 {
			d.problemf(n, "is empty: write an element, or remove the key")
			return
		}
		d.problemf(n, "needs at least %d elements, and has %d", low, length)
	}
	if high, err := strconv.Atoi(f.max); err == nil && length > high {
		d.problemf(n, "has %d elements, and at most %d are possible", length, high)
	}
}

// scalar decodes text, numbers and true or false.
func (d *decoder) scalar(n Node, v reflect.Value, f field) {
	if !n.IsZero() && n.yaml.Kind != yaml.ScalarNode {
		d.problemf(n, "must be %s, not %s", kindName(v.Type()), n.describe())
		return
	}
	text, problems := n.text()
	if len(problems) > 0 {
		d.problems = append(d.problems, problems...)
		return
	}
	if n.isQuoted() && text == n.yaml.Value && isNumeric(v.Type()) {
		d.problemf(n, "must be %s, not text: remove the quotes", kindName(v.Type()))
		return
	}
	if err := setScalar(v, text); err != nil {
		d.problemf(n, "must be %v, not %q", err, n.yaml.Value)
		return
	}
	if v.Kind() == reflect.String {
		d.checkString(n, v, f)
		return
	}
	if low := f.bound(v.Type(), f.min); low.IsValid() && less(v, low) {
		d.problemf(n, "must be at least %s, not %s", f.min, n.yaml.Value)
	}
	if high := f.bound(v.Type(), f.max); high.IsValid() && less(high, v) {
		d.problemf(n, "must be at most %s, not %s", f.max, n.yaml.Value)
	}
}

// checkString applies the options of a field to its text.
func (d *decoder) checkString(n Node, v reflect.Value, f field) {
	text := v.String()
	if len(f.enum) > 0 && !slices.Contains(f.enum, text) {
		hint := ""
		if near, ok := nearest(text, f.enum); ok {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		d.problemf(n, "must be %s, not %q%s", or(f.enum), n.yaml.Value, hint)
	}
	if f.path && text != "" && !strings.Contains(text, "://") {
		v.SetString(n.File(text))
	}
}

// setScalar sets v from its text. The error completes "must be …".
func setScalar(v reflect.Value, text string) error {
	switch into := v.Addr().Interface().(type) {
	case *Size:
		return assign(into, text, parseSize)
	case *Count:
		return assign(into, text, parseCount)
	case *time.Duration:
		return assign(into, text, parseDuration)
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("true or false")
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var i int64
		if i, err = strconv.ParseInt(text, 10, v.Type().Bits()); err == nil {
			v.SetInt(i)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var u uint64
		if u, err = strconv.ParseUint(text, 10, v.Type().Bits()); err == nil {
			v.SetUint(u)
		}
	case reflect.Float32, reflect.Float64:
		var f float64
		if f, err = strconv.ParseFloat(text, v.Type().Bits()); err == nil && (f-f == 0) {
			v.SetFloat(f)
		} else {
			err = strconv.ErrSyntax
		}
	default:
		return fmt.Errorf("something that the router can decode (%s is a bug of the router)", v.Type())
	}
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s of at most %d bits", kindName(v.Type()), v.Type().Bits())
	}
	if err != nil {
		return errors.New(kindName(v.Type()))
	}
	return nil
}

func assign[T any](into *T, text string, parse func(string) (T, error)) error {
	value, err := parse(text)
	if err == nil {
		*into = value
	}
	return err
}

// kindName says what a scalar of a type must be.
func kindName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Size]():
		return "a size in bytes"
	case reflect.TypeFor[Count]():
		return "a whole number"
	case reflect.TypeFor[time.Duration]():
		return "a duration"
	}
	switch {
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return "a number"
	case isNumeric(t):
		return "a whole number"
	}
	return "text"
}

// isNumeric reports whether values of a type are written without quotes. A size or a duration may be quoted.
func isNumeric(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Size](), reflect.TypeFor[Count](), reflect.TypeFor[time.Duration]():
		return false
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

func less(a, b reflect.Value) bool {
	switch {
	case a.CanInt():
		return a.Int() < b.Int()
	case a.CanUint():
		return a.Uint() < b.Uint()
	case a.CanFloat():
		return a.Float() < b.Float()
	}
	return false
}
