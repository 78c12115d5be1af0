package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// chartName is the folder in the package of a chart, which must be the name of the chart.
const chartName = "deltarouter"

var (
	// semantic is the form that Helm requires of a chart's version.
	semantic = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+(-[-.0-9A-Za-z]+)?)$`)
	// chartVersions are the lines of Chart.yaml that a release replaces.
	chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)
)

// chartVersion returns the version of the chart. A build between releases is older than all of
// them.
func (s source) chartVersion() string {
	if match := semantic.FindStringSubmatch(s.version); match != nil {
		return match[1]
	}
	return "0.0.0-g" + strings.NewReplacer("_", "-", "+", "-").Replace(s.version)
}

// packChart returns the chart as helm package makes it, with the versions of the release: the image
// of the chart is the one with the tag of this version.
func (s source) packChart() (artifact, error) {
	dir := filepath.Join(s.root, "deploy", "chart")
	ignored, err := os.ReadFile(filepath.Join(dir, ".helmignore"))
	if err != nil {
		return artifact{}, err
	}
	patterns := strings.Fields(string(ignored))
	var entries []entry
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && matches(patterns, d.Name()):
			return fs.SkipDir
		case d.IsDir() || matches(patterns, d.Name()):
			return nil
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if name == "Chart.yaml" {
			content = s.stampChart(content)
		}
		entries = append(entries, entry{name: path.Join(chartName, name), mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return artifact{}, fmt.Errorf("the chart: %w", err)
	}
	packed, err := compressTar(entries, s.time)
	if err == nil && len(entries) < 2 {
		err = errors.New("the chart has no files")
	}
	return artifact{chartName + "-" + s.chartVersion() + ".tgz", packed}, err
}

func (s source) stampChart(text []byte) []byte {
	return chartVersions.ReplaceAllFunc(text, func(line []byte) []byte {
		if bytes.HasPrefix(line, []byte("version:")) {
			return fmt.Appendf(nil, "version: %q", s.chartVersion())
		}
		return fmt.Appendf(nil, "appVersion: %q", s.version)
	})
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); ok && err == nil {
			return true
		}
	}
	return false
}
