package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// limitsOf returns the limits of a sink with that configuration.
func limitsOf(t testing.TB, yaml string, memory plugins.KV) *limits {
	t.Helper()
	node, problems := config.ParseNode("test.yaml", []byte("allow: [{resource: v1/configmaps, verbs: [merge, delete]}]\n"+yaml))
	var c sinkConfig
	if problems = append(problems, node.Decode(&c)...); len(problems) > 0 {
		t.Fatal(problems)
	}
	rates, err := c.rates()
	must.Succeed(t, err)
	return newLimits(rates[0], rates[1], rates[2], memory)
}

func operationOn(verb string, n int) (id string, op *operation) {
	name := fmt.Sprint("o", n)
	return name, &operation{verb: verb, target: target{version: "v1", resource: "configmaps", namespace: "ns", name: name}}
}

// TestLimitsByDefault: the default limits stop a faulty route too, and `none` is no limit.
func TestLimitsByDefault(t *testing.T) {
	// Guarantee: kubernetes-limits
	for _, tt := range []struct {
		yaml, verb string
		most       int
		what       string
	}{
		{"", verbDelete, 1000, "has deleted 1000 objects within 10m (maxDeletes)"},
		{"", verbMerge, 10_000, "has written 10000 times within 10m (maxWrites)"},
		{"maxDeletes: none", verbDelete, 10_000, "has written 10000 times within 10m (maxWrites)"},
		{"maxDeletes: none\nmaxWrites: none", verbDelete, 20_000, ""},
		{"maxWrites: none", verbMerge, 20_000, ""},
	} {
		l, now := limitsOf(t, tt.yaml, nil), time.Unix(0, 0)
		for n := range tt.most {
			id, op := operationOn(tt.verb, n)
			if _, err := l.take(now, "r", id, op); err != nil {
				t.Fatalf("%q: number %d: %v", tt.yaml, n, err)
			}
		}
		id, op := operationOn(tt.verb, tt.most)
		if _, err := l.take(now.Add(10*time.Minute-1), "r", id, op); (err == nil) != (tt.what == "") || err != nil && !strings.Contains(err.Error(), tt.what) {
			t.Errorf("%q: got %v, want %s", tt.yaml, err, tt.what)
		}
		if _, err := l.take(now.Add(10*time.Minute), "r", id, op); err != nil {
			t.Errorf("%q: when the time is over: %v", tt.yaml, err)
		}
	}
}

// BenchmarkLimits counts a write while the windows of the default limits have one free place.
func BenchmarkLimits(b *testing.B) {
	for verb, most := range map[string]int{verbMerge: 10_000, verbDelete: 1000} {
		b.Run(verb, func(b *testing.B) {
			l, now := limitsOf(b, "", notes{}), time.Unix(0, 0)
			for n := range most - 1 {
				id, op := operationOn(verb, n)
				if _, err := l.take(now, "r", id, op); err != nil {
					b.Fatal(err)
				}
			}
			id, op := operationOn(verb, most)
			for b.Loop() {
				if _, err := l.take(now, "r", id, op); err != nil {
					b.Fatal(err)
				}
				l.giveBack("r", id, op)
			}
		})
	}
}
