package cel_test

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// typedConfig has sources of built-in resources, and one of which nothing is known.
func typedConfig(tb testing.TB, define map[string]string) cel.EnvConfig {
	tb.Helper()
	set, err := schema.Builtin()
	must.Succeed(tb, err)
	cfg := cel.EnvConfig{
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

func typedEnv(tb testing.TB, define map[string]string) *cel.Env {
	tb.Helper()
	env, err := cel.NewEnv(typedConfig(tb, define))
	must.Succeed(tb, err)
	return env
}

func typedInput(tb testing.TB, source, before, after string) cel.Input {
	tb.Helper()
	d := &event.Delta{Source: source, Op: event.Added, New: object(tb, after)}
	if before != "" {
		d.Op, d.Old = event.Updated, object(tb, before)
	}
	return cel.Input{Delta: d, Cache: cache{
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
		p, err := env.Compile(test.text, cel.Filter, "pods")
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

var update = flag.Bool("update", false, "write what was got into the golden file")

// TestMistakes compares each message with the one in the golden file.
func TestMistakes(t *testing.T) {
	// Guarantee: typed-expressions
	const file = "testdata/mistakes.txtar"
	env := typedEnv(t, map[string]string{"web": `object.spec.nodeName == "web"`, "deep": "web"})
	usages := map[string]cel.Usage{"filter": cel.Filter, "emit": cel.Emit, "key": cel.Key, "index": cel.Index}
	archive, err := txtar.ParseFile(file)
	must.Succeed(t, err)
	if len(archive.Files) < 60 {
		t.Errorf("there are only %d cases", len(archive.Files))
	}
	for i, c := range archive.Files {
		words := strings.Fields(c.Name)
		text, want, _ := strings.Cut(string(c.Data), "\n---\n")
		_, err := env.Compile(text, usages[words[0]], words[1:]...)
		got := ""
		for _, e := range cel.CompileErrors(err) {
			if e.Source != "" {
				got += "source " + e.Source + ": "
			}
			got += strings.ReplaceAll(e.Error(), "\n", "\n  ") + "\n"
		}
		if *update {
			archive.Files[i].Data = []byte(text + "\n---\n" + got)
		} else if got != want || got == "" {
			t.Errorf("%s: %s\n got %swant %s", c.Name, text, got, want)
		}
	}
	if *update {
		must.Succeed(t, os.WriteFile(file, txtar.Format(archive), 0o600))
	}
}

// TestSeveralSources: a delta is evaluated by the program that was checked for its source.
func TestSeveralSources(t *testing.T) {
	env := typedEnv(t, map[string]string{"old": `object.metadata.creationTimestamp < timestamp("2026-06-01T00:00:00Z")`})
	p, err := env.Compile(`old && object.spec.priority == 1`, cel.Filter, "pods", "widgets")
	must.Succeed(t, err)
	const text = `{"metadata": {"name": "x", "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"priority": 1}}`
	if ok, err := p.Match(t.Context(), typedInput(t, "pods", "", text)); !ok || err != nil {
		t.Error("pods: ", ok, err)
	}
	// of them a time is a text
	if ok, err := p.Match(t.Context(), typedInput(t, "widgets", "", text)); kindOf(err) != "type" {
		t.Error("widgets: ", ok, err)
	}
}

// TestWarnings: a suggested replacement compiles, and does not cause the warning again.
func TestWarnings(t *testing.T) {
	env := typedEnv(t, map[string]string{"ready": `object.status.conditions.exists(c, c.status == "True")`})
	for _, test := range []struct{ text, want string }{
		{`object.spec.nodeName == "n1"`, `1:13: object.spec.nodeName may be absent, and nothing matches then; if that is not intended: object.spec.?nodeName.orValue("")`},
		{`object.metadata.labels["a.b/c"] == "x"`, `1:17: object.metadata.labels may be absent, and nothing matches then; if that is not intended: object.metadata.?labels["a.b/c"].orValue("")`},
		{`object.spec.affinity.nodeAffinity == object.spec.affinity.nodeAffinity`, `1:13: object.spec.affinity may be absent, and nothing matches then; if that is not intended, check with has(object.spec.affinity)`},
		{`object.spec.containers.exists(c, c.ports.size() > 0)`, `1:36: c.ports may be absent, and nothing matches then; if that is not intended: c.?ports.orValue([])`},
		{"op == \"added\" &&\n  object.spec.priority > 1", `2:15: object.spec.priority may be absent, and nothing matches then; if that is not intended: object.spec.?priority.orValue(0)`},
		{`ready`, `define ready: 1:15: object.status.conditions may be absent, and nothing matches then; if that is not intended: object.status.?conditions.orValue([])`},
		// An empty text would be no time: the author has to check for presence.
		{`timestamp(object.metadata.annotations["until"]) < timestamp("2026-01-01T00:00:00Z")`, `1:27: object.metadata.annotations may be absent, and nothing matches then; if that is not intended, check first whether it exists: object.metadata.?annotations["until"].hasValue() && …`},
		{`object.metadata.?annotations["until"].hasValue() && timestamp(object.metadata.annotations["until"]) < timestamp("2026-01-01T00:00:00Z")`, ""},
		{`quantity(object.metadata.?annotations["size"].orValue("")).isGreaterThan(quantity("1"))`, `1:47: quantity("") fails, and the delta with it; check first whether it exists, with hasValue() in place of orValue("")`},
		// A computed operand is shown as it was written.
		{`object.status.?conditions.orValue([]).filter(c, c.status == "False")[0].reason == "x"`, `1:73: object.status.?conditions.orValue([]).filter(c, c.status == "False")[0].reason may be absent, and nothing matches then; if that is not intended, check with has(object.status.?conditions.orValue([]).filter(c, c.status == "False")[0].reason)`},
		{`lookup("byNode", object.metadata.name)[0].spec.nodeName == "x"`, `1:48: lookup("byNode", object.metadata.name)[0].spec.nodeName may be absent, and nothing matches then; if that is not intended, check with has(lookup("byNode", object.metadata.name)[0].spec.nodeName)`},
		{`lookup("byNode", object.metadata.name, 1)[0].spec.nodeName == "x"`, `1:51: lookup("byNode", object.metadata.name, 1)[0].spec.nodeName may be absent, and nothing matches then; if that is not intended, check with has(lookup("byNode", object.metadata.name, 1)[0].spec.nodeName)`},
		// A loop through something is a sign that it is there.
		{`object.metadata.?labels.orValue({}).exists(k, object.metadata.labels[k] == "x")`, ""},
		{`object.metadata.labels.exists(k, object.metadata.labels[k] == "x")`, `1:17: object.metadata.labels may be absent, and nothing matches then; if that is not intended: object.metadata.?labels.orValue({})`},
		{`has(object.spec.nodeName) && object.spec.nodeName == "n1"`, ""},
		{`object.spec.?nodeName.orValue("") == "n1" && object.status.?containerStatuses[0].state.waiting.reason.orValue("") == "x"`, ""},
		{`object.metadata.name == object.metadata.uid && object.spec.containers[0].name == "x" && object.kind == "Pod"`, ""},
		{`has(object.metadata.labels) && "app" in object.metadata.labels && object.metadata.labels["app"] == "x"`, ""},
		{`changed("spec.nodeName") && dyn(object).spec.nodeName == "x"`, ""},
	} {
		p, err := env.Compile(test.text, cel.Filter, "pods")
		if err != nil {
			t.Fatal(test.text, err)
		}
		var got []string
		for _, w := range p.Warnings() {
			got = append(got, (&cel.CompileError{Define: w.Define, Issues: []cel.Issue{w.Issue}}).Error())
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.text, strings.Join(got, "\n"), test.want)
		}
		wrong, mended, found := strings.Cut(test.want, "; if that is not intended: ")
		if !found || strings.HasPrefix(test.want, "define") {
			continue
		}
		_, wrong, _ = strings.Cut(strings.TrimSuffix(wrong, " may be absent, and nothing matches then"), ": ")
		whole := strings.Replace(test.text, wrong, mended, 1)
		// the element is mended with the field
		if i := strings.Index(mended, "["); i > 0 && strings.Contains(test.text, "]") {
			whole = strings.Replace(test.text, strings.NewReplacer("?", "", `.orValue("")`, "").Replace(mended), mended, 1)
		}
		again, err := env.Compile(whole, cel.Filter, "pods")
		if err != nil || len(again.Warnings()) > 0 {
			t.Errorf("%s: %v, or still with a warning", whole, err)
		}
	}
	for _, usage := range []cel.Usage{cel.Emit, cel.Key, cel.Index} {
		p, err := env.Compile(map[cel.Usage]string{
			cel.Emit: `{"n": object.spec.nodeName}`, cel.Key: `object.spec.nodeName`, cel.Index: `object.spec.nodeName`,
		}[usage], usage, "pods")
		if err != nil || len(p.Warnings()) != map[cel.Usage]int{cel.Emit: 1, cel.Key: 1}[usage] {
			t.Errorf("usage %d: %v, %v", usage, err, p.Warnings())
		}
	}
}

// TestBySource: each source has its own text, and an error names the source.
func TestBySource(t *testing.T) {
	env := typedEnv(t, nil)
	programs := make(map[string]*cel.Program)
	for source, text := range map[string]string{"pods": `object.spec.nodeName == "n1"`, "nodes": `object.spec.unschedulable`} {
		p, err := env.Compile(text, cel.Filter, source)
		must.Succeed(t, err)
		programs[source] = p
	}
	p := cel.BySource(programs)
	if equalities, rest := p.Conjuncts(); len(equalities) > 0 || !rest {
		t.Error("the equalities of one source count for all")
	}
	if p.Identity() == programs["pods"].Identity() || p.Identity() != cel.BySource(programs).Identity() {
		t.Error("identity")
	}
	for _, test := range []struct {
		source, text string
		want         bool
	}{
		{"pods", `{"metadata": {"name": "x"}, "spec": {"nodeName": "n1", "unschedulable": false}}`, true},
		{"nodes", `{"metadata": {"name": "x"}, "spec": {"nodeName": "n1", "unschedulable": false}}`, false},
		{"nodes", `{"metadata": {"name": "x"}, "spec": {"nodeName": "n2", "unschedulable": true}}`, true},
	} {
		if ok, err := p.Match(t.Context(), typedInput(t, test.source, "", test.text)); ok != test.want || err != nil {
			t.Errorf("%s: %s: %v %v", test.source, test.text, ok, err)
		}
	}
	_, err := p.Match(t.Context(), typedInput(t, "nodes", "", `{"metadata": {"name": "x"}, "spec": {}}`))
	if failed, ok := errors.AsType[*cel.EvalError](err); !ok || failed.Source != "nodes" || kindOf(err) != "absent" {
		t.Errorf("%#v", err)
	}
}
