// Command monitoring writes the alerts and the dashboard of deploy/monitoring:
//
//	go run ./tools/monitoring [-docs URL] deploy/monitoring
//
// rules.yaml has the alerts for Prometheus and promtool, prometheusrule.yaml the same as an object
// of the Prometheus operator, dashboard.json the dashboard for Grafana. The alerts are those of
// internal/metrics; the panels are in panels.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// publishedDocs is the folder of OPERATIONS.md in the repository.
const publishedDocs = "https://github.com/deltarouter/deltarouter/blob/main/docs"

func main() {
	docs := flag.String("docs", publishedDocs, "`URL` of the folder of OPERATIONS.md, for the annotation runbook_url")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: monitoring [-docs URL] FOLDER")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *docs); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// run writes all files to a folder.
func run(dir, docs string) error {
	files, err := render(docs)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil { //nolint:gosec // public
			return err
		}
	}
	return nil
}

// render returns the content of the files by name.
func render(docs string) (map[string][]byte, error) {
	groups := ruleGroups(docs)
	rules, err := inYAML(groups)
	if err != nil {
		return nil, err
	}
	object, err := inYAML(prometheusRule{
		APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule",
		Metadata: metadata{Name: "deltarouter", Labels: map[string]string{"app.kubernetes.io/name": "deltarouter"}},
		Spec:     groups,
	})
	if err != nil {
		return nil, err
	}
	board, err := inJSON(newDashboard())
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"rules.yaml": rules, "prometheusrule.yaml": object, "dashboard.json": board}, nil
}
