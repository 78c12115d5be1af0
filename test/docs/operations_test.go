package docs

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestOperationsMetrics: each metric that docs/OPERATIONS.md names is in docs/METRICS.md, with its
// labels.
func TestOperationsMetrics(t *testing.T) {
	known := metricLabels(t)
	text := readDoc(t, "OPERATIONS.md")
	named := regexp.MustCompile(`\b(deltarouter_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(text, -1)
	for _, m := range named {
		labels, ok := known[m[1]]
		if !ok {
			t.Errorf("docs/OPERATIONS.md names %s, which docs/METRICS.md does not have", m[1])
		}
		for _, label := range regexp.MustCompile(`(\w+)=~?"`).FindAllStringSubmatch(m[2], -1) {
			if label[1] != "namespace" && !slices.Contains(labels, label[1]) { // Prometheus adds that of the pod
				t.Errorf("docs/OPERATIONS.md: %s has no label %s, only %v", m[1], label[1], labels)
			}
		}
	}
	if len(named) < 30 {
		t.Errorf("only %d metrics were found", len(named))
	}
}

// metricLabels returns the labels of each metric in docs/METRICS.md.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	labels := make(map[string][]string)
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(readDoc(t, "METRICS.md"), -1) {
		labels[m[1]] = strings.Split(strings.TrimSpace(m[2]), ", ")
	}
	return labels
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	must.Succeed(t, err)
	return string(text)
}
