package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// TestTooManyProblems: a file of nothing but mistakes is refused before they fill the memory.
func TestTooManyProblems(t *testing.T) {
	_, problems := config.Parse("config.yaml", []byte("sources:\n"+strings.Repeat(" {a: 1}:\n  - {b: 2, b: 3}\n", 20)+strings.Repeat("? [x]\n: 1\n", 50_000)))
	if len(problems) == 0 || len(problems) > 1001 {
		t.Errorf("%d problems", len(problems))
	}
	var keys strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&keys, "key%d: 1\n", i)
	}
	_, problems = config.Parse("config.yaml", []byte(keys.String()))
	if len(problems) != 1001 || !strings.Contains(problems[1000].Message, "more problems") {
		t.Errorf("%d problems, the last is %v", len(problems), problems[len(problems)-1])
	}
}
