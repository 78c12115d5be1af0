package inspect

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/kept"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestCheckKept shows which queries are refused because they read fields that the cache does not
// keep.
func TestCheckKept(t *testing.T) {
	// Guarantee: cache-auto
	env, err := cel.NewEnv(cel.EnvConfig{Sources: map[string][]string{"pods": {"name"}, "nodes": {"name"}}})
	must.Succeed(t, err)
	few := kept.Identity().Or(kept.Of([]string{"status", "phase"}, []string{"metadata", "labels"}))
	inv := &Inventory{kept: map[string]kept.Set{"pods": few, "nodes": kept.Identity()}}
	const (
		of  = `, which the cache of source "`
		end = `" does not keep (cache: auto): give the source cache: full, or an index that reads it`
	)
	for _, tt := range []struct{ source, labels, filter, want string }{
		{"pods", "", "", ""},
		{"pods", "app=web", `object.status.phase == "x" && object.metadata.name != ""`, ""},
		{"nodes", "app=web", "", "the query reads metadata.labels" + of + "nodes" + end},
		{"pods", "", `object.spec.nodeName == "x" && object.status == null`, "the query reads spec.nodeName, status" + of + "pods" + end},
		{"pods", "", `object == null || get("nodes", "", "a").spec.x == 1`, "the query reads spec.x" + of + "nodes" + end},
		{"pods", "", `object == oldObject`, "the query reads the whole object" + of + "pods" + end},
		{"other", "app=web", `object.spec.x == 1`, ""},
	} {
		var filter *cel.Program
		if tt.filter != "" {
			filter, err = env.Compile(tt.filter, cel.Filter, tt.source)
			must.Succeed(t, err)
		}
		text := ""
		if err := inv.checkKept(api.Query{Source: tt.source, Labels: tt.labels}, filter); err != nil {
			text = err.Error()
		}
		if text != tt.want {
			t.Errorf("%+v: got %s", tt, text)
		}
	}
	if got := strings.Join(inv.keptFields("pods"), " "); got != "metadata.creationTimestamp metadata.labels status.phase" || inv.keptFields("other") != nil {
		t.Errorf("kept are %s", got)
	}
}
