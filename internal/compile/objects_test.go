package compile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestFormerText shows that the former text of an object runs while the object has a mistake, but
// not that of another object, which had the same name and was deleted.
func TestFormerText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(`
version: 1
sources: {maps: {resource: v1/configmaps}}
sinks: {out: {stdout: {}}}
customResources: {routes: {namespaces: [ns], sources: [maps], sinks: [out]}}
`), 0o600))
	alone := func(config.Cluster) (*informer.Client, error) { return nil, errors.New("there is no cluster") }
	planOf := func(uid, from string, former map[string][]byte) *compile.Plan {
		f := &config.Fragment{
			Name: "route/web -n ns", Object: &config.ObjectRef{Namespace: "ns", Name: "web", UID: uid},
			Data: []byte("metadata: {name: web, namespace: ns}\nspec: {from: [" + from + "], to: [out]}\n"),
		}
		p, problems := (*compile.Plans)(nil).Make(t.Context(), compile.Input{Path: path, Tolerant: true, Fragments: []*config.Fragment{f}, Former: former},
			compile.Components{Sinks: []plugins.SinkKind{stdout.Kind()}}, alone)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return p
	}
	first := planOf("a", "maps", nil)
	if len(first.Routes) != 1 {
		t.Fatal(first.Mistakes())
	}
	if p := planOf("a", "mops", first.Accepted); len(p.Rejected) != 1 || len(p.Routes) != 1 {
		t.Errorf("the same object: %d routes, %v", len(p.Routes), p.Mistakes())
	}
	if p := planOf("b", "mops", first.Accepted); len(p.Rejected) != 1 || len(p.Routes) != 0 {
		t.Errorf("another object: %d routes, %v", len(p.Routes), p.Mistakes())
	}
}
