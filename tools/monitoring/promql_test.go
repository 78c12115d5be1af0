package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deltarouter/deltarouter/internal/metrics"
)

var (
	text      = regexp.MustCompile(`"[^"]*"`)
	rangeOf   = regexp.MustCompile(`\[[^\]]*\]`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	function  = regexp.MustCompile(`\b[a-z_0-9]+\s*\(`)
	aggregate = regexp.MustCompile(`\b(?:sum|min|max|count)\s`)
	operator  = regexp.MustCompile(`\b(?:or|and|unless|bool)\b`)
	selector  = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	template  = regexp.MustCompile(`\$labels\.(\w+)`)
	legend    = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
)

// scraped are labels that Prometheus adds.
var scraped = []string{"instance", "job"}

// knownMetrics returns the labels of each metric that the router serves.
func knownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	known := make(map[string][]string)
	for _, m := range metrics.Table() {
		known[m.Name] = m.Labels
		if m.Type == "histogram" {
			known[m.Name+"_bucket"] = append([]string{"le"}, m.Labels...)
			known[m.Name+"_count"], known[m.Name+"_sum"] = m.Labels, m.Labels
		}
	}
	descs := make(chan *prometheus.Desc, 1000)
	metrics.New().Registry().Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "((?:go|process)_\w+)"`)
	for d := range descs {
		if m := name.FindStringSubmatch(d.String()); m != nil {
			known[m[1]] = nil
		}
	}
	return known
}

// usage is the metrics and labels of an expression.
type usage struct {
	metrics  []string
	grouped  []string // labels of by, on and the like
	problems []string
}

// read finds the metrics and labels of an expression. It takes each other word for a metric, which
// the test then reports as unknown. Prometheus reports other mistakes.
func read(expr string, known map[string][]string) (u usage) {
	expr = rangeOf.ReplaceAllString(text.ReplaceAllString(expr, `""`), "")
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		u.grouped = append(u.grouped, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, r := range []*regexp.Regexp{grouping, function, aggregate, operator} {
		expr = r.ReplaceAllString(expr, " ")
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		labels, ok := known[m[1]]
		if !ok {
			u.problems = append(u.problems, "no metric "+m[1])
			continue
		}
		u.metrics = append(u.metrics, m[1])
		for _, by := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, by[1]) && !slices.Contains(scraped, by[1]) {
				u.problems = append(u.problems, fmt.Sprintf("%s has no label %s", m[1], by[1]))
			}
		}
	}
	for _, label := range u.grouped {
		if label != "le" && !u.has(label, known) {
			u.problems = append(u.problems, "no label "+label)
		}
	}
	return u
}

// has reports whether each metric of the expression has a label.
func (u usage) has(label string, known map[string][]string) bool {
	if slices.Contains(scraped, label) {
		return true
	}
	return !slices.ContainsFunc(u.metrics, func(m string) bool { return !slices.Contains(known[m], label) })
}

// TestRead shows that read finds mistakes.
func TestRead(t *testing.T) {
	known := map[string][]string{"a": {"x"}, "h_bucket": {"le", "x"}}
	for expr, want := range map[string]string{
		`sum by (x) (rate(a{x="b", instance=~"c"}[5m])) > 0`:             "",
		`histogram_quantile(0.9, sum by (x, le) (rate(h_bucket{}[5m])))`: "",
		`sum(b)`:                    "no metric b",
		`a{y="1"}`:                  "a has no label y",
		`sum by (y) (a)`:            "no label y",
		`a == 0 or max by (x) (bb)`: "no metric bb",
	} {
		if got := strings.Join(read(expr, known).problems, "; "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// TestAlertsNameMetrics shows that alerts use metrics and labels that exist.
func TestAlertsNameMetrics(t *testing.T) {
	known := knownMetrics(t)
	for _, a := range metrics.Alerts() {
		u := read(a.Expr, known)
		for _, m := range template.FindAllStringSubmatch(a.Summary+a.Description, -1) {
			if !u.has(m[1], known) {
				u.problems = append(u.problems, "a template has the label "+m[1])
			}
		}
		if len(u.problems) > 0 || len(u.metrics) == 0 {
			t.Errorf("%s: %s: %v", a.Name, a.Expr, u.problems)
		}
	}
}

// TestPanelsNameMetrics shows that the dashboard uses metrics and labels that exist.
func TestPanelsNameMetrics(t *testing.T) {
	known := knownMetrics(t)
	for _, r := range rows() {
		for _, p := range r.panels {
			for _, q := range p.queries {
				u := read(expand(q.expr), known)
				for _, m := range legend.FindAllStringSubmatch(q.legend, -1) {
					if strings.Contains(q.expr, " by (") && !slices.Contains(u.grouped, m[1]) || !u.has(m[1], known) {
						u.problems = append(u.problems, "the legend has the label "+m[1])
					}
				}
				if len(u.problems) > 0 || len(u.metrics) == 0 {
					t.Errorf("%s: %s: %v", p.title, q.expr, u.problems)
				}
			}
		}
	}
}
