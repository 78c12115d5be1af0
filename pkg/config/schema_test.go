package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/pkg/config"
)

func TestSchemaIsTheSameTwice(t *testing.T) {
	first := config.Schema()
	if len(first) == 0 || !json.Valid(first) || !bytes.Equal(first, config.Schema()) {
		t.Fatalf("%s", first)
	}
}

// TestSchemaDescribesAll: no field without a sentence.
func TestSchemaDescribesAll(t *testing.T) {
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		for key, p := range sub(s, "properties") {
			child, _ := p.(map[string]any)
			if d, _ := child["description"].(string); !strings.HasSuffix(d, ".") {
				t.Errorf("%s.%s has no description", path, key)
			}
			walk(path+"."+key, child)
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if child := sub(s, key); child != nil {
				walk(path+"[]", child)
			}
		}
	}
	s := schema(t)
	walk("", s)
	routes := sub(sub(sub(s, "properties"), "routes"), "items")
	if got := fmt.Sprint(routes["required"]); got != "[name from to]" {
		t.Error(got)
	}
	if got := sub(sub(routes, "properties"), "on")["default"]; fmt.Sprint(got) != "[added updated deleted]" {
		t.Error(got)
	}
}

// TestSchemaAgrees: the schema accepts what the router accepts, and refuses what it can see to be wrong.
func TestSchemaAgrees(t *testing.T) {
	s := schema(t)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	refused := []string{"unknown_keys", "types", "missing", "nothing", "list_expected", "values", "components"}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		valid := archive.Files[1].Name == "config"
		if !valid && !slices.Contains(refused, name) {
			continue
		}
		root, _ := config.ParseNode("config.yaml", archive.Files[0].Data)
		text, err := json.Marshal(raw(t, root))
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		problems := validate(s, value, "")
		if valid != (len(problems) == 0) {
			t.Errorf("%s: valid is %t, and the schema finds %q", name, valid, problems)
		}
	}
}

// raw returns YAML as JSON; variables of the tests are set.
func raw(t *testing.T, n config.Node) json.RawMessage {
	t.Helper()
	for name, value := range map[string]string{"REGION": "eu", "BURST": "20"} {
		t.Setenv(name, value)
	}
	// Quoted variables stay text in JSON, as an editor sees them.
	data, err := n.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte(`"20"`), []byte(`"${BURST}"`))
}

func schema(t *testing.T) (s map[string]any) {
	t.Helper()
	if err := json.Unmarshal(config.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func sub(s map[string]any, key string) map[string]any {
	m, _ := s[key].(map[string]any)
	return m
}

// validate knows the keywords that Schema uses.
func validate(s map[string]any, value any, path string) (problems []string) {
	fail := func(format string, args ...any) { problems = append(problems, path+": "+fmt.Sprintf(format, args...)) }
	if want, ok := s["type"]; ok && !isType(want, value) {
		fail("is no %v", want)
		return problems
	}
	if enum, ok := s["enum"].([]any); ok && !slices.ContainsFunc(enum, func(e any) bool { return reflect.DeepEqual(e, value) }) {
		fail("is none of %v", enum)
	}
	if options, ok := s["anyOf"].([]any); ok {
		if !slices.ContainsFunc(options, func(one any) bool { return len(validate(one.(map[string]any), value, path)) == 0 }) {
			fail("fits none")
		}
	}
	switch v := value.(type) {
	case string:
		if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			fail("does not match %s", pattern)
		}
	case float64:
		if low, ok := s["minimum"].(float64); ok && v < low {
			fail("is too small")
		}
		if high, ok := s["maximum"].(float64); ok && v > high {
			fail("is too large")
		}
	case []any:
		if low, ok := s["minItems"].(float64); ok && float64(len(v)) < low {
			fail("is too short")
		}
		for i, item := range v {
			problems = append(problems, validate(sub(s, "items"), item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case map[string]any:
		problems = append(problems, validateObject(s, v, path)...)
	}
	return problems
}

func validateObject(s, v map[string]any, path string) (problems []string) {
	if low, ok := s["minProperties"].(float64); ok && float64(len(v)) < low {
		problems = append(problems, path+": has too few keys")
	}
	if high, ok := s["maxProperties"].(float64); ok && float64(len(v)) > high {
		problems = append(problems, path+": has too many keys")
	}
	required, _ := s["required"].([]any)
	for _, key := range required {
		if _, ok := v[key.(string)]; !ok {
			problems = append(problems, fmt.Sprintf("%s: %v is missing", path, key))
		}
	}
	for key, item := range v {
		if p, ok := sub(s, "properties")[key].(map[string]any); ok {
			problems = append(problems, validate(p, item, path+"."+key)...)
		} else if s["additionalProperties"] == false {
			problems = append(problems, path+": unknown key "+key)
		} else if more := sub(s, "additionalProperties"); more != nil {
			problems = append(problems, validate(more, item, path+"."+key)...)
		}
	}
	return problems
}

func isType(want, value any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return isType(one, value) })
	}
	switch v := value.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	case map[string]any:
		return want == "object"
	}
	return false
}
