package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// TestPathsAreBounded has routes that fork and join: one delta would become 2^n events.
func TestPathsAreBounded(t *testing.T) {
	for _, test := range []struct {
		forks, wide int // wide: further routes behind the first one
		problems    int
	}{{7, 0, 0}, {8, 0, 1}, {40, 0, 1}, {0, 1500, 0}} {
		var b strings.Builder
		b.WriteString("version: 1\nsources: {pods: {resource: v1/pods}}\nsinks: {out: {stdout: {}}}\nroutes:\n- {name: r0, from: pods, to: [{route: a1}, {route: b1}")
		for i := range test.wide {
			fmt.Fprintf(&b, ", {route: w%d}", i)
		}
		b.WriteString("]}\n")
		for i := 1; i <= test.forks; i++ {
			for _, name := range []string{"a", "b"} {
				fmt.Fprintf(&b, "- {name: %s%d, to: [{route: a%d}, {route: b%d}]}\n", name, i, i+1, i+1)
			}
		}
		fmt.Fprintf(&b, "- {name: a%d, to: out}\n- {name: b%d, to: out}\n", test.forks+1, test.forks+1)
		for i := range test.wide {
			fmt.Fprintf(&b, "- {name: w%d, to: out}\n", i)
		}
		_, problems := config.Parse("config.yaml", []byte(b.String()), config.Policy{})
		if len(problems) != test.problems || len(problems) > 0 && !strings.Contains(problems[0].Error(), "routes[0].to: an event of this route reaches other routes on more than 1000 paths") {
			t.Errorf("%+v: %v", test, problems)
		}
	}
}
