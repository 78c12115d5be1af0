package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// width is the bound of the lines of values.yaml.
const width = 100

// valuesYAML writes the defaults of a struct, with their descriptions as comments.
func valuesYAML(out *bytes.Buffer, t reflect.Type, indent string) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("hidden") != "" {
			continue
		}
		if indent == "" {
			fmt.Fprintln(out)
		}
		comment(out, f.Tag.Get("doc"), indent)
		key := f.Tag.Get("json")
		if f.Type.Kind() == reflect.Struct {
			fmt.Fprintf(out, "%s%s:\n", indent, key)
			if err := valuesYAML(out, f.Type, indent+"  "); err != nil {
				return err
			}
			continue
		}
		var value any
		if err := yaml.Unmarshal([]byte(f.Tag.Get("default")), &value); err != nil {
			return fmt.Errorf("default of %s: %w", key, err)
		}
		text, err := yaml.Marshal(map[string]any{key: value})
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			fmt.Fprint(out, indent, line)
		}
	}
	return nil
}

// comment writes a text as comment lines.
func comment(out *bytes.Buffer, text, indent string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			fmt.Fprintln(out, line)
			line = indent + "#"
		}
		line += " " + word
	}
	fmt.Fprintln(out, line)
}

// schemaOf returns the schema of a type. config is the schema of the router's configuration.
func schemaOf(t reflect.Type, config map[string]any) (map[string]any, error) {
	switch t {
	case reflect.TypeFor[configuration]():
		return config, nil
	case reflect.TypeFor[object]():
		return map[string]any{"type": []string{"object", "null"}}, nil
	}
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Bool:
		return map[string]any{"type": map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Bool: "boolean"}[t.Kind()]}, nil
	case reflect.Interface:
		return map[string]any{}, nil
	case reflect.Slice:
		items, err := schemaOf(t.Elem(), config)
		return map[string]any{"type": []string{"array", "null"}, "items": items}, err
	case reflect.Map:
		items, err := schemaOf(t.Elem(), config)
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": items}, err
	case reflect.Struct:
		return structSchema(t, config)
	}
	return nil, fmt.Errorf("type %s has no schema", t)
}

func structSchema(t reflect.Type, config map[string]any) (map[string]any, error) {
	properties := map[string]any{}
	required := []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("json")
		property, err := schemaOf(f.Type, config)
		if err != nil {
			return nil, err
		}
		property["description"] = f.Tag.Get("doc")
		if names := f.Tag.Get("enum"); names != "" {
			property["enum"] = strings.Fields(names)
		}
		if least := f.Tag.Get("min"); least != "" {
			if property["minimum"], err = strconv.Atoi(least); err != nil {
				return nil, err
			}
		}
		if f.Tag.Get("required") != "" {
			required = append(required, key)
			property["minLength"] = 1
		}
		properties[key] = property
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}, nil
}

// valuesSchema returns values.schema.json, with the schema of the configuration below config.
func valuesSchema(configSchema []byte) ([]byte, error) {
	var config map[string]any
	if err := json.Unmarshal(configSchema, &config); err != nil {
		return nil, err
	}
	dialect := config["$schema"]
	delete(config, "$schema")
	delete(config, "title")
	// The chart sets version, and an empty config means existingConfigMap.
	delete(config, "required")
	config["if"] = map[string]any{"minProperties": 1}
	config["then"] = map[string]any{"required": []string{"sources", "sinks", "routes"}}
	schema, err := schemaOf(reflect.TypeFor[values](), config)
	if err != nil {
		return nil, err
	}
	schema["$schema"], schema["title"] = dialect, "Values of the chart deltarouter"
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err = encoder.Encode(schema)
	return out.Bytes(), err
}
