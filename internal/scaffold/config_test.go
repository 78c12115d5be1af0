package scaffold

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

func TestConfig(t *testing.T) {
	if names := Sinks(); !slices.Contains(names, DefaultSink) || !slices.Contains(names, "slack") || !slices.IsSorted(names) {
		t.Fatalf("got %v", names)
	}
	for _, c := range []struct {
		name, sink    string
		config, cases string
		err           string // contained
	}{
		{name: "config.yaml", sink: "slack", config: "config.yaml", cases: "config_test.yaml"},
		{name: "deploy/prod/router.yaml", sink: "stdout", config: "deploy/prod/router.yaml", cases: "deploy/prod/router_test.yaml"},
		{name: "folder", sink: "nats", config: "folder/config.yaml", cases: "folder/config_test.yaml"},
		{name: "config.yaml", sink: "slak", err: `there is no template "slak"; did you mean "slack"?`},
		{name: "config.yaml", sink: "../config", err: `there is no template "../config"`},
		{name: "config.json", sink: "stdout", err: "ends in .yaml"},
		{name: "config_test.yaml", sink: "stdout", err: "those of cases"},
		{name: "there.yaml", sink: "stdout", err: "there.yaml exists already: remove it"},
		{name: "cases.yaml", sink: "stdout", err: "cases_test.yaml exists already: remove it"},
		{name: "there.yaml/config.yaml", sink: "stdout", err: "there.yaml/config.yaml cannot be written: a part of its path is a file, not a folder"},
	} {
		t.Run(c.name+" "+c.sink, func(t *testing.T) {
			t.Chdir(t.TempDir())
			must.Succeed(t, os.Mkdir("folder", 0o700))
			for _, name := range []string{"there.yaml", "cases_test.yaml"} {
				must.Succeed(t, os.WriteFile(name, []byte("mine"), 0o600))
			}
			config, cases, err := Config(c.name, c.sink)
			if c.err != "" {
				must.Fail(t, err, c.err)
				if left, _ := filepath.Glob("*"); len(left) != 3 {
					t.Errorf("files were written: %v", left)
				}
				return
			}
			must.Succeed(t, err)
			if config != c.config || cases != c.cases {
				t.Errorf("got %s and %s, want %s and %s", config, cases, c.config, c.cases)
			}
			for file, part := range map[string]string{config: "to: " + c.sink, cases: "# Cases for " + filepath.Base(config)} {
				if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), part) {
					t.Errorf("%s has not %q: %v\n%s", file, part, err, text)
				}
			}
			if _, _, err = Config(c.name, c.sink); err == nil {
				t.Error("it was overwritten")
			}
		})
	}
}
