package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAutoscaler: the rule for prometheus-adapter in docs/OPERATIONS.md serves the metric that the
// HorizontalPodAutoscaler of the chart asks for, by the labels that it names, and the router has
// it.
func TestAutoscaler(t *testing.T) {
	hpa := autoscaler(t)
	name := hpa.Metric.Name
	if table := read(t, "../../docs/METRICS.md"); !strings.Contains(table, "| `"+name+"` | gauge |") {
		t.Errorf("the router has no gauge %s", name)
	}
	text := read(t, "../../docs/OPERATIONS.md")
	found := regexp.MustCompile("(?ms)^```yaml\n(rules:\n.*?)^```$").FindStringSubmatch(text)
	if found == nil {
		t.Fatal("docs/OPERATIONS.md has no rule")
	}
	var values struct {
		Rules struct {
			External []struct {
				SeriesQuery, MetricsQuery string
				Name                      struct{ Matches, As string }
				Resources                 struct {
					Namespaced *bool
					Overrides  map[string]struct{ Resource string }
				}
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(found[1]), &values); err != nil || len(values.Rules.External) != 1 {
		t.Fatal(values, err)
	}
	rule := values.Rules.External[0]
	series, _, _ := strings.Cut(rule.SeriesQuery, "{")
	if series != name || rule.Name.As != "" {
		t.Errorf("the adapter serves %s as %q, and the chart asks for %s", series, rule.Name.As, name)
	}
	for label := range hpa.Metric.Selector.MatchLabels {
		if rule.Resources.Overrides[label].Resource != "namespace" || !strings.Contains(rule.SeriesQuery, label+`!=""`) {
			t.Errorf("the chart selects by the label %s, and the rule is %+v", label, rule)
		}
	}
	if rule.MetricsQuery != "max(<<.Series>>{<<.LabelMatchers>>})" {
		t.Errorf("the query is %s", rule.MetricsQuery)
	}
	if others := regexp.MustCompile(`deltarouter_fleet_work\w*`).FindAllString(text, -1); len(others) < 4 {
		t.Error("docs/OPERATIONS.md does not name the metric")
	} else {
		for _, other := range others {
			if other != name {
				t.Errorf("docs/OPERATIONS.md names the metric %s, and the chart asks for %s", other, name)
			}
		}
	}
}

// external is a metric of a HorizontalPodAutoscaler.
type external struct {
	Metric struct {
		Name     string
		Selector struct{ MatchLabels map[string]string }
	}
}

// autoscaler returns the metric of the HorizontalPodAutoscaler of the chart.
func autoscaler(t *testing.T) external {
	t.Helper()
	rendered, err := render(namespace, valuesOf(t, "fleet"))
	if err != nil {
		t.Fatal(err)
	}
	for one := range strings.SplitSeq(joined(rendered), "\n---\n") {
		var hpa struct {
			Kind string
			Spec struct{ Metrics []struct{ External external } }
		}
		if err := yaml.Unmarshal([]byte(one), &hpa); err != nil {
			t.Fatal(err)
		}
		if hpa.Kind == "HorizontalPodAutoscaler" && len(hpa.Spec.Metrics) == 1 {
			return hpa.Spec.Metrics[0].External
		}
	}
	t.Fatal("the chart has no HorizontalPodAutoscaler")
	return external{}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
