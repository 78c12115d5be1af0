package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write the table of metrics anew")

const docsHead = `# Metrics

` + "`/metrics` of `listen.probes`" + ` serves these in the Prometheus text format, beside those of the Go runtime
and of the process. A test writes this table from the registry.

| Metric | Type | Labels | Meaning |
|---|---|---|---|
`

var (
	desc   = regexp.MustCompile(`^Desc\{fqName: "(deltarouter_\w+)", help: "(.*?)"(?:, unit: ".*?")?, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	object = regexp.MustCompile(`^deltarouter_(source|route|handler|guests?|dead_letters|checkpoint|config|build)(_|$)`)
)

// TestDocumented shows that docs/METRICS.md has every metric, and that each name begins with its
// subject.
func TestDocumented(t *testing.T) {
	m := metrics.New()
	m.SetCheckpointAge(func() time.Duration { return 0 })
	descs := make(chan *prometheus.Desc, 1000)
	m.Registry().Describe(descs)
	close(descs)
	var rows []string
	for d := range descs {
		parts := desc.FindStringSubmatch(d.String())
		if parts == nil {
			continue // of the runtime or the process
		}
		name, kind := parts[1], "gauge"
		switch {
		case strings.HasSuffix(name, "_total"):
			kind = "counter"
		case strings.HasSuffix(name, "_duration_seconds"):
			kind = "histogram"
		}
		if !object.MatchString(name) {
			t.Errorf("%s does not say what it is about", name)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.ReplaceAll(parts[3], ",", ", "), parts[2]))
	}
	slices.Sort(rows)
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
