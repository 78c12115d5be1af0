package reference_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/config/reference"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// kinds are example kinds of a router.
func kinds() config.Kinds {
	type out struct {
		Format string        `yaml:"format" default:"json" enum:"json text" doc:"How lines look."`
		URL    config.Secret `yaml:"url,required" doc:"Where to."`
	}
	return config.Kinds{
		Handlers: []config.Kind{{Name: "idle", Doc: "Does nothing.", Example: "{}\n", Config: struct{}{}}},
		Sinks:    []config.Kind{{Name: "out", Doc: "Writes.", Example: "format: text\nurl: http://h\n", Config: out{}}},
	}
}

func TestSchemaIsTheSameTwice(t *testing.T) {
	first := reference.Schema(kinds())
	if len(first) == 0 || !json.Valid(first) || !bytes.Equal(first, reference.Schema(kinds())) {
		t.Fatalf("%s", first)
	}
}

// TestSchemaDescribesAll shows that each field is described by a sentence.
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
	if got := fmt.Sprint(routes["required"]); got != "[name to]" {
		t.Error(got)
	}
	if got := sub(sub(routes, "properties"), "ops")["default"]; fmt.Sprint(got) != "[added updated deleted]" {
		t.Error(got)
	}
}

func schema(t *testing.T) (s map[string]any) {
	t.Helper()
	must.Succeed(t, json.Unmarshal(reference.Schema(kinds()), &s))
	return s
}

func sub(s map[string]any, key string) map[string]any {
	m, _ := s[key].(map[string]any)
	return m
}
