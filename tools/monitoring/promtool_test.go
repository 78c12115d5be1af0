package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/prometheustest"
)

// testDocs is another place of the documents than the default.
const testDocs = "https://docs.example.com/router"

// The format of promtool's unit tests.
type (
	ruleTests struct {
		RuleFiles          []string   `yaml:"rule_files"`
		EvaluationInterval string     `yaml:"evaluation_interval"`
		Tests              []ruleTest `yaml:"tests"`
	}
	ruleTest struct {
		Name        string        `yaml:"name"`
		Interval    string        `yaml:"interval"`
		InputSeries []inputSeries `yaml:"input_series"`
		Alerts      []alertTest   `yaml:"alert_rule_test,omitempty"`
		Exprs       []exprTest    `yaml:"promql_expr_test,omitempty"`
	}
	inputSeries struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	alertTest struct {
		EvalTime string          `yaml:"eval_time"`
		Name     string          `yaml:"alertname"`
		Expected []expectedAlert `yaml:"exp_alerts"`
	}
	expectedAlert struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations annotations       `yaml:"exp_annotations"`
	}
	exprTest struct {
		Expr     string   `yaml:"expr"`
		EvalTime string   `yaml:"eval_time"`
		Samples  []sample `yaml:"exp_samples"`
	}
	sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
)

// TestAlerts checks the rules with promtool, and shows with series that each alert fires, with the
// right texts, and that it does not fire otherwise.
func TestAlerts(t *testing.T) {
	promtool := prometheustest.Program(t, "promtool")
	dir := t.TempDir()
	files, err := render(testDocs)
	must.Succeed(t, err)
	rules := filepath.Join(dir, "rules.yaml")
	must.Succeed(t, os.WriteFile(rules, files["rules.yaml"], 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint-fatal", rules).CombinedOutput(); err != nil {
		t.Fatalf("promtool check rules: %v\n%s", err, out)
	}
	tests := ruleTests{RuleFiles: []string{rules}, EvaluationInterval: "1m"}
	for _, a := range metrics.Alerts() {
		c, ok := alertCases[a.Name]
		if !ok {
			t.Errorf("no case of %s", a.Name)
			continue
		}
		tests.Tests = append(tests.Tests, c.tests(a)...)
	}
	for _, c := range moreCases {
		firing := 0.0
		if c.fires {
			firing = 1
		}
		count := exprTest{fmt.Sprintf(`count(ALERTS{alertname=%q, alertstate="firing"}) or vector(0)`, c.alert), c.at, []sample{{"{}", firing}}}
		tests.Tests = append(tests.Tests, ruleTest{Name: c.alert + ": " + c.at, Interval: "1m", InputSeries: c.in.input(), Exprs: []exprTest{count}})
	}
	file := filepath.Join(dir, "tests.yaml")
	content, err := inYAML(tests)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, content, 0o600))
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// tests returns the tests of an alert.
func (c alertCase) tests(a metrics.Alert) []ruleTest {
	labels := map[string]string{"severity": a.Severity}
	maps.Copy(labels, c.labels)
	fires := []alertTest{{c.at, a.Name, []expectedAlert{{
		labels, annotations{c.summary, c.description, testDocs + "/OPERATIONS.md#" + a.Runbook()},
	}}}}
	if a.For > 0 {
		fires = append(fires, alertTest{EvalTime: c.early, Name: a.Name})
	}
	return []ruleTest{
		{Name: a.Name + " fires", Interval: "1m", InputSeries: c.fires.input(), Alerts: fires},
		{Name: a.Name + " does not fire", Interval: "1m", InputSeries: c.quiet.input(), Alerts: []alertTest{{EvalTime: "50m", Name: a.Name}}},
	}
}

func (s series) input() (in []inputSeries) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		in = append(in, inputSeries{name, s[name]})
	}
	return in
}
