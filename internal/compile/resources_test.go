package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestProposedResources shows that the message about a wrong resource proposes each resource of
// Kubernetes by the names that kubectl has for it.
func TestProposedResources(t *testing.T) {
	t.Parallel()
	builtin, err := schema.Builtin()
	must.Succeed(t, err)
	builtin.Each(func(group, version, resource string, r schema.Resource) {
		want := strings.TrimPrefix(group+"/"+version+"/"+resource, "/")
		if want == "autoscaling/v1/horizontalpodautoscalers" {
			return // v2 is proposed
		}
		written := []string{"v2/" + strings.ToUpper(resource[:1]) + resource[1:]}
		if group != "" {
			written = []string{resource + "." + group, resource + "." + version + "." + group, group + "/" + r.Kind}
		}
		if group != "events.k8s.io" { // v1/events is proposed
			written = append(written, resource, r.Kind, strings.ToLower(r.Kind))
		}
		for _, text := range written {
			if _, _, _, err := config.ParseResource(text); err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("; did you mean %q?", want)) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}
	})
}
