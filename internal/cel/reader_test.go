package cel_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestReader: the result of a read does not depend on earlier reads.
func TestReader(t *testing.T) {
	var programs []*cel.Program
	typed, err := cel.NewEnv(typedConfig(t, nil))
	must.Succeed(t, err)
	for _, env := range []*cel.Env{environment(t), typed} {
		for _, text := range []string{
			`object.spec.nodeName`, `object.status.phase`, `object.metadata.name`, `object.metadata.labels["app"]`, `object.status.hostIP`,
			`object.metadata.namespace + "/" + object.metadata.labels["app"]`, `object.metadata.annotations["users"].split(",")`,
			`object.spec.containers.map(c, c.name)`, `object.spec.restartPolicy`, `object.kind`, `dyn(object).absent.inner`, `dyn(object).spec.absent`,
			`object.spec.securityContext.fsGroup`, `dyn(object).metadata.name.x`, `dyn(object).metadata == dyn(object).spec ? "same" : "not"`,
		} {
			p, err := env.Compile(text, cel.Index, "pods")
			if err != nil {
				t.Fatal(text, err)
			}
			programs = append(programs, p)
		}
	}
	objects := []*event.Object{object(t, web), object(t, podJSON(t)), object(t, `{"kind":"x","spec":[{"nodeName":"n"}],"metadata":{"name":"m"}}`)}
	rapid.Check(t, func(rt *rapid.T) {
		var r cel.Reader
		var obj *event.Object
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			if obj == nil || rapid.IntRange(0, 4).Draw(rt, "another") == 0 {
				obj = rapid.SampledFrom(objects).Draw(rt, "object")
				r.Reset(obj)
			}
			p := rapid.SampledFrom(programs).Draw(rt, "program")
			keys, err := r.Keys([]string{"before"}, p)
			want, wantErr := p.Keys(obj)
			if !slices.Equal(keys, append([]string{"before"}, want...)) || kindOf(err) != kindOf(wantErr) {
				rt.Fatalf("%q, %v; want %q, %v", keys, err, want, wantErr)
			}
			if f, ok := p.Plain(); ok {
				value, reading := r.Field(f)
				if want, wantReading := f.ReadIn(obj); value != want || reading != wantReading {
					rt.Fatalf("%q, %v; want %q, %v", value, reading, want, wantReading)
				}
			}
		}
	})
}
