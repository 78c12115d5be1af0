package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write the table of metrics anew")

const docsHead = `# Metrics

` + "`/metrics` of `listen.probes`" + ` serves these in the formats of Prometheus (text, OpenMetrics, protobuf), beside
those of the Go runtime and of the process. Histograms have classic buckets and, in protobuf, native ones. Exemplars of
` + "`deltarouter_route_delivery_duration_seconds`" + ` have the id of an event as ` + "`event_id`" + `, and with tracing that
of its trace as ` + "`trace_id`" + `, at most one a second for each route. A test writes this table from the registry.

| Metric | Type | Labels | Meaning |
|---|---|---|---|
`

var object = regexp.MustCompile(`^deltarouter_(source|route|handler|guests?|dead_letters|checkpoint|state|trace|config|include|history|build|fleet)(_|$)`)

// TestDocumented shows that docs/METRICS.md has every metric, and that each name begins with its
// subject.
func TestDocumented(t *testing.T) {
	var rows []string
	for _, m := range metrics.Table() {
		if !object.MatchString(m.Name) {
			t.Errorf("%s does not say what it is about", m.Name)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help))
	}
	const file = "../../docs/METRICS.md"
	want := docsHead + strings.Join(rows, "")
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want || len(rows) < 30 {
		t.Errorf("docs/METRICS.md is not what the registry has (%d metrics): run go test ./internal/metrics -run TestDocumented -update (%v)", len(rows), err)
	}
}
