package scaffold

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/similar"
)

// defaultConfig is the name of a configuration where none is given.
const defaultConfig = "config.yaml"

// sinkTemplates holds one file per kind of receiver, each with one entry of `sinks`.
const sinkTemplates = "templates/config/sinks"

// DefaultSink is the sink of a configuration that needs no receiver.
const DefaultSink = "stdout"

// Sinks lists the names that [Config] takes, in alphabetical order.
func Sinks() []string {
	entries, err := templates.ReadDir(sinkTemplates)
	if err != nil {
		return nil // the folder is part of the program
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".yaml"+templateSuffix)
	}
	return names
}

// Config writes a configuration whose events go to a sink of that name, and its cases beside it. It
// returns the paths of both. A folder in place of the file gets a config.yaml.
func Config(name, sink string) (config, cases string, err error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, defaultConfig)
	}
	stem, isYAML := strings.CutSuffix(name, ".yaml")
	switch {
	case !isYAML:
		return "", "", fmt.Errorf("%s: the name of a configuration ends in .yaml", name)
	case !slices.Contains(Sinks(), sink):
		return "", "", fmt.Errorf("there is no template %q%s", sink, similar.Suggest(sink, Sinks()))
	case strings.HasSuffix(stem, "_test"):
		return "", "", fmt.Errorf("%s: names that end in _test.yaml are those of cases: name the configuration, its cases are written beside it", name)
	}
	entry, err := templates.ReadFile(path.Join(sinkTemplates, sink+".yaml"+templateSuffix))
	if err != nil {
		return "", "", err
	}
	cases = stem + "_test.yaml"
	values := map[string]string{"Config": filepath.Base(name), "Test": filepath.Base(cases), "Name": sink, "Sink": string(entry)}
	files := []file{{path: name}, {path: cases}}
	if files[0].text, err = render("templates/config/config.yaml.tmpl", values); err != nil {
		return "", "", err
	}
	if files[1].text, err = render("templates/config/config_test.yaml.tmpl", values); err != nil {
		return "", "", err
	}
	return name, cases, write(files)
}
