package process

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestConfigSchema: all violations of a plugin's schema are reported with their positions and
// without the values.
func TestConfigSchema(t *testing.T) {
	for _, tt := range []struct {
		schema, yaml string
		want         []string
	}{
		{``, "a: [1]", nil},
		{`{"type": "object", "required": ["a"]}`, "a: 1", nil},
		{`{"type": "object"}`, "null", nil}, // null is an empty configuration
		{`{"required": ["a"]}`, "null", []string{"1:1: a: is required"}},
		{`{"required": ["a"]}`, "{b: 1}", []string{"1:1: a: is required"}},
		{`{"type": "object"}`, "[1]", []string{"1:1: must be of type object"}},
		{`{"properties": {"a": {"type": "integer"}}}`, "a: 1.5", []string{"1:4: a: must be of type integer"}},
		{`{"properties": {"a": {"type": "string", "format": "email"}}}`, "a: s3cret", []string{"1:4: a: must be of type email"}},
		{`{"properties": {"a": {"pattern": "^x"}}}`, "a: s3cret", []string{"1:4: a: should match '^x'"}},
		{`{"additionalProperties": false, "properties": {"a": {}}}`, "b: 1\na: 2\nc: 3", []string{"1:4: b: is a forbidden property", "3:4: c: is a forbidden property"}},
		{
			`{"properties": {"l": {"items": {"properties": {"a.b": {"minimum": 2}, "a": {"properties": {"b": {"enum": ["p", "q"]}}}}}}}}`,
			"l:\n- {a.b: 1}\n- {a: {b: r}}",
			[]string{`2:9: l[0]["a.b"]: should be greater than or equal to 2`, "3:11: l[1].a.b: should be one of [p q]"},
		},
		{`{"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}`, "a: 1", []string{
			"1:4: a: must be of type string", "1:4: a: must validate at least one schema (anyOf)",
		}},
		{`{"properties": {"a.b": {"minimum": 2}}}`, "{a: {c: 1}, a.b: 1}", []string{`1:18: ["a.b"]: should be greater than or equal to 2`}},
		{`{"not": {"required": ["a"]}}`, "a: 1", []string{"1:1: must not validate the schema (not)"}},
	} {
		node := plugintest.Node(t, tt.yaml)
		text, err := node.JSON()
		must.Succeed(t, err)
		problems, err := checkConfig(tt.schema, string(text), node)
		if err != nil {
			t.Errorf("%s: %v", tt.schema, err)
		}
		var got []string
		for _, p := range problems.Sorted() {
			got = append(got, strings.TrimPrefix(p.Error(), "test.yaml:"))
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s of %s\ngot  %q\nwant %q", tt.yaml, tt.schema, got, tt.want)
		}
	}
}

// TestSchemaOfNoUse: an invalid schema, or one of a later draft, is an error of its own, and does
// not reject the configuration.
func TestSchemaOfNoUse(t *testing.T) {
	for _, schema := range []string{
		`{`, `[]`, `{"properties": {"a": {"exclusiveMinimum": 3}}}`, `{"properties": {"a": {"$ref": "#/$defs/x"}}}`, strings.Repeat(`{"not":`, 20000),
	} {
		if problems, err := checkConfig(schema, `{"a": 1}`, plugintest.Node(t, "a: 1")); !errors.Is(err, errSchema) || problems != nil {
			t.Errorf("%.50s: %v, %v", schema, problems, err)
		}
	}
}

// FuzzSchema: any text as a schema lets the router continue.
func FuzzSchema(f *testing.F) {
	f.Add(`{"properties": {"a": {"items": {"type": ["string", "null"]}}, "b": {"pattern": "("}}}`, "{a: [1], b: x}")
	f.Add(`{"oneOf": [{"required": ["a"]}, {"not": {}}], "dependencies": {"a": ["c"]}}`, "a: {b.c[0]: 1}")
	f.Fuzz(func(t *testing.T, schema, yaml string) {
		if strings.Contains(yaml, "&") {
			return // aliases may multiply the configuration
		}
		node, mistakes := config.ParseNode("test.yaml", []byte(yaml))
		if mistakes != nil {
			return
		}
		text, err := node.JSON()
		if err != nil {
			return
		}
		problems, err := checkConfig(schema, string(text), node)
		if err != nil && problems != nil {
			t.Error(problems, err)
		}
		for _, p := range problems {
			if p.Line == 0 && !node.IsZero() {
				t.Errorf("%v has no place", p)
			}
		}
	})
}
