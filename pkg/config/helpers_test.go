package config_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// node parses YAML without problems.
func node(t testing.TB, yaml string) config.Node {
	t.Helper()
	n, problems := config.ParseNode("config.yaml", []byte(yaml))
	must.Succeed(t, problems.Err())
	return n
}

// TestTooManyProblems: a file that consists of mistakes is rejected before they fill the memory.
func TestTooManyProblems(t *testing.T) {
	_, problems := config.Parse("config.yaml", []byte("sources:\n"+strings.Repeat(" {a: 1}:\n  - {b: 2, b: 3}\n", 20)+strings.Repeat("? [x]\n: 1\n", 50_000)), config.Policy{})
	if len(problems) == 0 || len(problems) > 1001 {
		t.Errorf("%d problems", len(problems))
	}
	var keys strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&keys, "key%d: 1\n", i)
	}
	_, problems = config.Parse("config.yaml", []byte(keys.String()), config.Policy{})
	if len(problems) != 1001 || !strings.Contains(problems[1000].Message, "more problems") {
		t.Errorf("%d problems, the last is %v", len(problems), problems[len(problems)-1])
	}
}

func TestMain(m *testing.M) { leaks.Main(m) }
