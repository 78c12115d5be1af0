package cel_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	gocel "github.com/google/cel-go/cel"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

const threeFields = `object.metadata.labels["app"] == "web" && object.spec.nodeName == "node-7" && object.status.phase == "Running"`

// BenchmarkFilter evaluates a filter of three fields, as the router does and as the usual way does:
// unmarshal, then standard CEL. Metric ratio: how many times faster the first is, measured side by
// side in one run.
func BenchmarkFilter(b *testing.B) {
	text := podJSON(b)
	lazy, usual := lazyFilter(b, text, cel.EnvConfig{Cluster: "test"}), usualFilter(b, text)
	typed := lazyFilter(b, text, typedConfig(b, nil))
	b.Run("lazy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			lazy()
		}
	})
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			typed()
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			usual()
		}
	})
	b.Run("ratio", func(b *testing.B) {
		var ours, theirs time.Duration
		for b.Loop() {
			start := time.Now()
			lazy()
			middle := time.Now()
			usual()
			ours, theirs = ours+middle.Sub(start), theirs+time.Since(middle)
		}
		b.ReportMetric(float64(theirs)/float64(ours), "ratio")
		b.ReportMetric(float64(len(text)), "object-bytes")
	})
}

func lazyFilter(b *testing.B, text string, cfg cel.EnvConfig) func() {
	b.Helper()
	env, err := cel.NewEnv(cfg)
	must.Succeed(b, err)
	program, err := env.Compile(threeFields, cel.Filter, "pods")
	must.Succeed(b, err)
	obj, err := event.ParseObject(&event.Resource{}, text)
	must.Succeed(b, err)
	in := cel.Input{Delta: &event.Delta{Source: "pods", Op: event.Updated, Old: obj, New: obj}}
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	return func() {
		if ok, err := program.Match(ctx, in); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func usualFilter(b *testing.B, text string) func() {
	b.Helper()
	env, err := gocel.NewEnv(gocel.Variable("object", gocel.DynType))
	must.Succeed(b, err)
	tree, issues := env.Compile(threeFields)
	if issues.Err() != nil {
		b.Fatal(issues.Err())
	}
	program, err := env.Program(tree, gocel.EvalOptions(gocel.OptOptimize))
	must.Succeed(b, err)
	data := []byte(text)
	return func() {
		var object map[string]any
		must.Succeed(b, json.Unmarshal(data, &object))
		if v, _, err := program.Eval(map[string]any{"object": object}); err != nil || v.Value() != true {
			b.Fatal(v, err)
		}
	}
}

// podJSON is a pod of 5 KB without white space, its keys in the order in which an API server sends
// them.
func podJSON(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile("testdata/pod.json")
	must.Succeed(tb, err)
	return strings.TrimSpace(string(text))
}
