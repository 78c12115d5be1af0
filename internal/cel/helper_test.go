package cel_test

import (
	"cmp"
	"errors"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

// web is the object of most tests.
const web = `{
  "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web", "a.b/c": "x"}, "annotations": {"users": "ernie,bert"}},
  "spec": {"nodeName": "n1", "replicas": 3, "ratio": 0.5, "whole": 2.0, "big": 9007199254740993, "huge": 18446744073709551615,
    "nothing": null, "containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2", "args": ["-v"]}]},
  "status": {"phase": "Running", "containerStatuses": [{"restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}
}`

func object(tb testing.TB, text string) *event.Object {
	tb.Helper()
	must.Succeed(tb, rawjson.Check(text))
	obj, err := event.ParseObject(&event.Resource{}, text)
	must.Succeed(tb, err)
	return obj
}

func updated(tb testing.TB, before, after string) cel.Input {
	tb.Helper()
	return cel.Input{
		Delta: &event.Delta{Source: "pods", Op: event.Updated, Old: object(tb, before), New: object(tb, after)},
		Cache: cache{},
	}
}

func config() cel.EnvConfig {
	return cel.EnvConfig{
		Cluster: "prod",
		Define: map[string]string{
			"statuses": `object.status.containerStatuses`,
			"crashing": `statuses.exists(c, c.?state.waiting.reason.orValue("") == "CrashLoopBackOff")`,
			"same":     `lookup("byNode", object.spec.nodeName)`,
		},
		Sources: map[string][]string{"pods": {"name", "namespace", "owner", "byNode"}, "nodes": {"name", "namespace", "owner"}},
	}
}

func environment(tb testing.TB) *cel.Env {
	tb.Helper()
	env, err := cel.NewEnv(config())
	must.Succeed(tb, err)
	return env
}

func compile(tb testing.TB, text string, usage cel.Usage) *cel.Program {
	tb.Helper()
	p, err := environment(tb).Compile(text, usage, "pods")
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return p
}

// cache has, by source/index/value, objects.
type cache map[string][]*event.Object

func (c cache) Lookup(source, index, value string) []*event.Object {
	return c[source+"/"+index+"/"+value]
}

func (c cache) Count(source, index, value string) int { return len(c.Lookup(source, index, value)) }

func (c cache) Get(source, namespace, name string) *event.Object {
	for _, obj := range c[source+"//"] {
		if obj.Key() == (event.Key{Namespace: namespace, Name: name}) {
			return obj
		}
	}
	return nil
}

// kindOf names the kind of an error of an evaluation.
func kindOf(err error) string {
	var evalErr *cel.EvalError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &evalErr):
		return "not an EvalError"
	case errors.Is(err, cel.ErrAbsent):
		return "absent"
	case errors.Is(err, cel.ErrCost):
		return "cost"
	}
	return cmp.Or(map[bool]string{true: "interrupted"}[errors.Unwrap(err) != nil], "type")
}

func TestMain(m *testing.M) { leaks.Main(m) }
