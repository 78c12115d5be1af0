package reference_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/config/reference"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestExampleHasEveryKey shows that the example of the reference contains every key and is a valid
// configuration.
func TestExampleHasEveryKey(t *testing.T) {
	text, err := os.ReadFile("example.yaml")
	must.Succeed(t, err)
	root, problems := config.ParseNode("example.yaml", text)
	if _, more := config.Parse("example.yaml", text, config.Policy{}); len(problems)+len(more) > 0 {
		t.Fatal(problems, more)
	}
	missing := lacks("", reflect.TypeFor[config.Config](), []config.Node{root})
	if len(missing) > 0 {
		t.Errorf("internal/config/reference/example.yaml has no %s", strings.Join(missing, ", "))
	}
}

// lacks returns the keys of a struct that none of the nodes has.
func lacks(path string, t reflect.Type, nodes []config.Node) (missing []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "" || key == "-" {
			continue
		}
		var below []config.Node
		for _, n := range nodes {
			if at := n.At(key); !at.IsZero() {
				below = append(below, at)
			}
		}
		if len(below) == 0 {
			missing = append(missing, path+key)
			continue
		}
		switch elem, opened := open(f.Type, below); elem {
		case nil, reflect.TypeFor[config.Expr](), reflect.TypeFor[config.Filter](), reflect.TypeFor[config.Secret](), reflect.TypeFor[config.Component](),
			reflect.TypeFor[config.NATSCredentials](): // of these only one way is valid
		default:
			missing = append(missing, lacks(path+key+".", elem, opened)...)
		}
	}
	return missing
}

// open returns the struct within a type and the corresponding nodes, or nil.
func open(t reflect.Type, nodes []config.Node) (elem reflect.Type, opened []config.Node) {
	switch t.Kind() {
	case reflect.Pointer:
		return open(t.Elem(), nodes)
	case reflect.Struct:
		return t, nodes
	case reflect.Slice:
		for _, n := range nodes {
			opened = append(opened, n.Items()...)
		}
		return open(t.Elem(), opened)
	case reflect.Map:
		for _, n := range nodes {
			for _, key := range n.Keys() {
				opened = append(opened, n.At(key))
			}
		}
		return open(t.Elem(), opened)
	}
	return nil, nil
}

func TestReference(t *testing.T) {
	text := reference.Reference(kinds())
	if !bytes.Equal(text, reference.Reference(kinds())) {
		t.Error("it is not the same twice")
	}
	for _, want := range []string{
		"\n## routes\n", "\n### out\n\nWrites.\n\n```yaml\nout:\n  format: text\n", "| `format` | `json`, `text` | `json` | How lines look. |",
		"| `url` | secret | *required* | Where to. |", "| `deadLetters.maxAge` | duration, at least 1s | `720h` |", "It has no keys: `{idle: {}}`.",
		"| `ops` | list of `added`, ", "| `filter` | CEL, or a mapping of sources to CEL |", "```yaml\nstate:\n  dir: ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the reference lacks %q", want)
		}
	}
}
