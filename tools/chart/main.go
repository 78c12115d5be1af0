// Chart writes the generated files of deploy/chart, and deploy/manifests: run make generate.
//
//	go -C tools/chart run .
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
)

// The folders of the repository, seen from this one.
const (
	root      = "../.."
	chart     = root + "/deploy/chart"
	manifests = root + "/deploy/manifests"
)

// copies are the files of the chart that have their source elsewhere.
var copies = map[string]string{
	"files/prometheusrule.yaml": "deploy/monitoring/prometheusrule.yaml",
	"files/dashboard.json":      "deploy/monitoring/dashboard.json",
	"files/crds.yaml":           "deploy/crds/crds.yaml",
}

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func generate() error {
	defaults := bytes.NewBufferString("# The values of the chart. Written by tools/chart from values.go: run make generate.\n")
	if err := valuesYAML(defaults, reflect.TypeFor[values](), ""); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(root, "docs", "config.schema.json"))
	if err != nil {
		return err
	}
	schema, err := valuesSchema(config)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(chart, "values.yaml"), defaults.Bytes()); err != nil {
		return err
	}
	if err := write(filepath.Join(chart, "values.schema.json"), schema); err != nil {
		return err
	}
	for to, from := range copies {
		text, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(chart, to), text); err != nil {
			return err
		}
	}
	return writeManifests()
}

// writeManifests renders the chart for those who do not use Helm.
func writeManifests() error {
	values, err := readValues(filepath.Join(manifests, "values.yaml"))
	if err != nil {
		return err
	}
	rendered, err := render(release, values)
	if err != nil {
		return err
	}
	head := "# Written by tools/chart from deploy/chart and values.yaml: run make generate.\n"
	return write(filepath.Join(manifests, "deltarouter.yaml"), []byte(head+plain(rendered)))
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
