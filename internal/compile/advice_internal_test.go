package compile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestSilencedAtTheStart shows that `# check: ok` silences the warnings of the router at its start,
// as it does those of `router check`.
func TestSilencedAtTheStart(t *testing.T) {
	components := Components{Sinks: []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("fake")}}}
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") }
	for _, c := range []struct {
		source, expression string
		warnings           int
	}{{"", "", 2}, {" # check: ok", "", 1}, {"", " // check: ok", 1}, {" # a type of ours, check: ok", " // check: ok", 0}} {
		text := strings.NewReplacer("SOURCE", c.source, "EXPRESSION", c.expression).Replace(`version: 1
sources:
  pods: {resource: v1/pods}
  widgets: {resource: example.com/v1/widgets} SOURCE
sinks: {out: {fake: {}}}
routes:
  - {name: widgets, from: widgets, to: out}
  - name: pods
    from: pods
    filter: |
      list("pods").exists(p, object.spec.containers.exists(c, p.metadata.name == c.name)) EXPRESSION
    to: out
`)
		path := filepath.Join(t.TempDir(), "config.yaml")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		p, problems := (&Plans{}).Make(t.Context(), Input{Path: path}, components, alone)
		if len(problems) > 0 || len(p.Warnings) != c.warnings {
			t.Errorf("%+v: %v, and these warnings, want %d:\n%v", c, problems, c.warnings, p.Warnings)
		}
	}
}
