// Package tags reads the tags of the structs into which YAML is decoded, see package config.
package tags

import (
	"reflect"
	"strings"
)

// Field has the tags of a struct's field.
type Field struct {
	Index    []int  // of reflect.Value.FieldByIndex
	name     string // in Go
	Key      string
	Required bool
	Path     string // class of the file that it names, see Policy; empty: no file
	Self     bool   // receives the node of the struct
	Default  string
	Enum     []string
	Min, Max string
	Doc      string
}

// Of returns the fields that have a key, in the order of the struct, with those of inline structs
// in their places.
func Of(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, ok := sf.Tag.Lookup("yaml")
		if !ok || tag == "-" || !sf.IsExported() {
			continue
		}
		key, options, _ := strings.Cut(tag, ",")
		f := Field{
			Index: []int{i}, name: sf.Name, Key: key,
			Default: sf.Tag.Get("default"), Enum: strings.Fields(sf.Tag.Get("enum")),
			Min: sf.Tag.Get("min"), Max: sf.Tag.Get("max"), Doc: sf.Tag.Get("doc"),
		}
		if options == "inline" {
			for _, inner := range Of(sf.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
			continue
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "required":
				f.Required = true
			case PathRead, PathWritten, PathSecret, PathModule:
				f.Path = option
			case "self":
				f.Self = true
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// Element returns the tags that apply to the elements of a list or map.
func (f Field) Element() Field { return Field{Key: f.Key, Enum: f.Enum, Path: f.Path} }

// Or lists alternatives: a, b or c.
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// The classes of paths, see [config.Policy.check].
const (
	PathRead    = "path"    // a file or folder
	PathWritten = "written" // one that the router writes to
	PathSecret  = "secret"  // the file of a Secret
	PathModule  = "module"  // a file that is read, or a reference to a registry, oci://…
)
