package main

import (
	"bytes"
	"encoding/json"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/metrics"
)

// written begins each YAML file.
const written = "# Written by tools/monitoring: run make generate.\n"

type prometheusRule struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       groups   `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// groups is a rule file of Prometheus.
type groups struct {
	Groups []group `yaml:"groups"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations annotations       `yaml:"annotations"`
}

type annotations struct {
	Summary     string `yaml:"summary"`
	Description string `yaml:"description"`
	RunbookURL  string `yaml:"runbook_url"`
}

// ruleGroups returns the alerts with links into the documents at a URL.
func ruleGroups(docs string) groups {
	g := group{Name: "deltarouter"}
	for _, a := range metrics.Alerts() {
		r := rule{
			Alert: a.Name, Expr: a.Expr, Labels: map[string]string{"severity": a.Severity},
			Annotations: annotations{Summary: a.Summary, Description: a.Description, RunbookURL: docs + "/OPERATIONS.md#" + a.Runbook()},
		}
		if a.For > 0 {
			r.For = strings.TrimSuffix(a.For.String(), "0s") // Prometheus writes 10m, not 10m0s
		}
		g.Rules = append(g.Rules, r)
	}
	return groups{[]group{g}}
}

func inYAML(v any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(written)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(v)
	return b.Bytes(), err
}

func inJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}
