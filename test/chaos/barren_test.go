package chaos

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

// barrenFor makes changes that no stream brings: the watch is cut, its next stream opens after the
// changes, and all are barren until met returns "". The reason must be a list. Before, met returns
// "" because the watch is open.
func barrenFor(t *testing.T, p *sandboxtest.Scissors, r *routertest.Router, namespace string, kind int, changes func(), met func() string) {
	t.Helper()
	wait(t, "the last state before the streams are barren", met)
	const stalled = `deltarouter_source_relists_total{reason="stalled",source="maps"}`
	before, name := r.Metric(t, stalled), sandboxtest.Barren[kind%len(sandboxtest.Barren)].Name
	p.Hold(func() {
		p.After(namespace, 0)
		p.Dry(namespace, -1, kind)
		changes()
	})
	wait(t, "the last state, while each stream is barren: "+name, met)
	if r.Metric(t, stalled) == before {
		t.Errorf("%s: the last state came without a list", name)
	}
	p.Dry(namespace, 0, 0)
}
