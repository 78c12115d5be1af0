package config_test

import (
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
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

// node reads YAML without problems.
func node(t testing.TB, yaml string) config.Node {
	t.Helper()
	n, problems := config.ParseNode("config.yaml", []byte(yaml))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}
