package compile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestConditionVersion: the version of a condition changes with everything that decides which
// objects the route sees, so that the conditions of the others end, and with nothing else.
func TestConditionVersion(t *testing.T) {
	// Guarantee: left-unseen
	const text = `
version: 1
sources:
  pods: {resource: v1/pods, namespaces: [a, b], labelSelector: app=web, resync: 1h}
  others: {resource: v1/pods, namespaceSelector: team=a, fieldSelector: spec.nodeName=n}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: [pods, others], when: 'object.metadata.name == "x"', every: 1h, to: out}]
`
	version := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "config.yaml")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		cfg, problems := config.Load(path, config.Policy{})
		known, err := compile.SavedSchemas("")
		must.Succeed(t, err)
		p, problems := compile.NewPlan(t.Context(), cfg, problems, compile.Components{Sinks: []plugins.SinkKind{stdout.Kind()}}, known, false)
		must.Succeed(t, problems.Err())
		return p.Routes[0].ConditionVersion(p.Sources)
	}
	for _, test := range []struct {
		old, new string
		same     bool
	}{
		{"[a, b]", "[a]", false},
		{"[a, b]", "[b, a]", true},
		{"app=web", "app=db", false},
		{"team=a", "team=b", false},
		{"nodeName=n", "nodeName=m", false},
		{"[pods, others]", "[pods]", false},
		{"others", "renamed", false},
		{`"x"`, `"y"`, false},
		{"resync: 1h", "resync: 2h", true},
		{"every: 1h", "every: 2h", true},
	} {
		if same := version(text) == version(strings.ReplaceAll(text, test.old, test.new)); same != test.same {
			t.Errorf("%s, then %s: the same version: %v", test.old, test.new, same)
		}
	}
}
