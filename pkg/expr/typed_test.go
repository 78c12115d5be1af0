package expr_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// typedConfig has sources of built-in resources, and one of which nothing is known.
func typedConfig(tb testing.TB, define map[string]string) expr.EnvConfig {
	tb.Helper()
	set, err := schema.Builtin()
	if err != nil {
		tb.Fatal(err)
	}
	cfg := expr.EnvConfig{
		Cluster: "prod", Define: define, Sources: make(map[string][]string), Types: make(map[string]*schema.Type),
	}
	for source, resource := range map[string][3]string{
		"pods": {"", "v1", "pods"}, "nodes": {"", "v1", "nodes"}, "secrets": {"", "v1", "secrets"}, "events": {"", "v1", "events"},
		"deployments": {"apps", "v1", "deployments"}, "services": {"", "v1", "services"},
	} {
		r, ok := set.Resource(resource[0], resource[1], resource[2])
		if !ok {
			tb.Fatal("there is no schema of ", source)
		}
		cfg.Types[source] = r.Type
		cfg.Sources[source] = []string{"name", "namespace", "owner"}
	}
	cfg.Sources["pods"] = append(cfg.Sources["pods"], "byNode")
	cfg.Sources["widgets"] = []string{"name"}
	cfg.Sources["metadata"] = []string{"name"}
	cfg.Types["metadata"] = cfg.Types["pods"].Metadata()
	return cfg
}

func typedEnv(tb testing.TB, define map[string]string) *expr.Env {
	tb.Helper()
	env, err := expr.NewEnv(typedConfig(tb, define))
	if err != nil {
		tb.Fatal(err)
	}
	return env
}

func typedInput(tb testing.TB, source, before, after string) expr.Input {
	tb.Helper()
	d := &event.Delta{Source: source, Op: event.Added, New: object(tb, after)}
	if before != "" {
		d.Op, d.Old = event.Updated, object(tb, before)
	}
	return expr.Input{Delta: d, Cache: cache{
		"nodes//": {object(tb, `{"metadata": {"name": "n1", "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"unschedulable": true}}`)},
	}}
}

func TestTypedMatch(t *testing.T) {
	pod := strings.TrimSpace(`{"metadata": {"name": "web-0", "namespace": "default", "creationTimestamp": "2026-01-02T03:04:05Z",
		"deletionTimestamp": null, "labels": {"app": "web"}, "finalizers": ["a/b", "c/d"]},
		"spec": {"nodeName": "n1", "priority": 0, "futureField": 7, "containers": [{"name": "a", "ports": [{"containerPort": 80}],
		"resources": {"limits": {"cpu": "500m"}}}]}, "status": {"phase": "Running", "startTime": "soon"}}`)
	env := typedEnv(t, map[string]string{
		"young": `object.metadata.creationTimestamp > timestamp("2026-01-01T00:00:00Z")`,
		"node":  `get("nodes", "", object.spec.nodeName)`,
	})
	for _, test := range []struct{ text, want string }{
		{`object.metadata.creationTimestamp == timestamp("2026-01-02T03:04:05Z")`, "true"},
		{`object.metadata.creationTimestamp.getFullYear() == 2026 && young`, "true"},
		{`timestamp(object.metadata.creationTimestamp) > timestamp("2027-01-01T00:00:00Z")`, "false"},
		{`has(object.metadata.deletionTimestamp)`, "false"},
		{`object.metadata.deletionTimestamp == timestamp("2026-01-02T03:04:05Z")`, "absent"},
		{`object.metadata.?deletionTimestamp.hasValue()`, "false"},
		{`object.metadata.namespace == object.metadata.__namespace__`, "true"},
		{`object.metadata.?__namespace__.orValue("") == "default"`, "true"},
		{`object.metadata.labels["app"] == "web" && object.metadata.labels.app == "web"`, "true"},
		{`object.metadata.annotations["users"] == "x"`, "absent"},
		{`object.spec.priority + 1 == 1`, "true"},
		{`object.spec.priority == 0.0`, "compile"},
		{`object.spec.priority < 0.5`, "true"},
		{`object.spec.containers.all(c, c.ports.exists(p, p.containerPort == 80))`, "true"},
		{`quantity(object.spec.containers[0].resources.limits["cpu"]).isLessThan(quantity("1"))`, "true"},
		{`object.spec.futureField == 7`, "compile"},
		{`dyn(object).spec.futureField == 7 && dyn(object.spec).futureField == 7`, "true"},
		{`dyn(object).spec.nodeName == "n1" && dyn(object).metadata["namespace"] == "default"`, "true"},
		{`dyn(object).spec.map(k, k) == ["nodeName", "priority", "futureField", "containers"]`, "true"},
		{`dyn(object).metadata.creationTimestamp == timestamp("2026-01-02T03:04:05Z")`, "true"},
		{`object.status.startTime == timestamp("2026-01-02T03:04:05Z")`, "type"},
		{`has(object.status.startTime)`, "true"},
		{`object.metadata.finalizers == ["c/d", "a/b"] && object.metadata.finalizers + ["a/b", "e"] == ["a/b", "c/d", "e"]`, "true"},
		{`oldObject == null`, "true"},
		{`oldObject != null && oldObject.spec.nodeName == "n1"`, "false"},
		{`has(oldObject.spec)`, "false"},
		{`oldObject.spec.nodeName == "n1"`, "absent"},
		{`node.spec.unschedulable && node.metadata.creationTimestamp == object.metadata.creationTimestamp`, "true"},
		{`get("nodes", "", "none") == null`, "true"},
		{`list("nodes").map(n, n.metadata.name) == ["n1"] && list("nodes")[0].metadata == node.metadata`, "true"},
		{`lookup("byNode", "n1").size() == 0 && list("widgets").all(w, w.anything.goes)`, "true"},
		{`object == object && object.spec == object.spec`, "true"},
		{`{"a": object.spec.priority, "b": "x"}.size() == 2`, "true"},
	} {
		p, err := env.Compile(test.text, expr.Filter, "pods")
		if err != nil {
			if test.want != "compile" {
				t.Errorf("%s: %v", test.text, err)
			}
			continue
		}
		ok, err := p.Match(t.Context(), typedInput(t, "pods", "", pod))
		got := map[bool]string{true: "true", false: "false"}[ok]
		if err != nil {
			got = kindOf(err)
		}
		if got != test.want {
			t.Errorf("%s: %s (%v), want %s", test.text, got, err, test.want)
		}
	}
}
