package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestLimits parses hostile documents, which must cost neither time nor memory.
func TestLimits(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	tests := map[string]struct{ yaml, want string }{
		"billion laughs": {laughs.String(), "config.yaml:1:1: is larger than 16 MiB with its aliases written out: remove aliases of aliases"},
		"long alias": {
			"a: &a " + strings.Repeat("x", 1<<19) + "\nb: [" + strings.Repeat("*a, ", 100) + "]",
			"config.yaml:1:1: is larger than 16 MiB with its aliases written out: remove aliases of aliases",
		},
		"deep":        {strings.Repeat("[", 150) + strings.Repeat("]", 150), "config.yaml:1:1: is nested more than 100 deep"},
		"deeper":      {strings.Repeat("[", 100_000), "config.yaml:1: is not YAML: exceeded max depth of 10000"},
		"large":       {strings.Repeat("# comment\n", 1<<20), "config.yaml: is larger than 1 MiB: a configuration is smaller; is it the right file?"},
		"cycle":       {"a: &a {b: {c: *a}}", "config.yaml:1:4: the value of anchor &a contains itself: remove the alias *a inside of it"},
		"merge cycle": {"a: &a\n  <<: *a", "config.yaml:1:4: the value of anchor &a contains itself: remove the alias *a inside of it"},
		"empty":       {"", "config.yaml: is empty: it needs at least version, sources, sinks and routes"},
		"blank":       {" \n\t\n", "config.yaml: is empty: it needs at least version, sources, sinks and routes"},
		// the document ends in a line that does not exist
		"no content":    {"\n---", "config.yaml: is empty: it needs at least version, sources, sinks and routes"},
		"not UTF-8":     {"a: 1\nb: \xff", "config.yaml:2: is not UTF-8: save the file as UTF-8"},
		"old Mac":       {"a: 1\rb: 2", "config.yaml:1: has a carriage return that ends no line: save the file with \\n line ends"},
		"separator":     {"a: \"x\u2028y\"", "config.yaml:1: has an invisible line separator, U+2028: write \\n, or an escape in double quotes"},
		"control":       {"a: \x01", "config.yaml:1: is not YAML: control characters are not allowed"},
		"bom is fine":   {"\ufeffa: 1", ""},
		"marker":        {"---\na: 1\n...\n", ""},
		"replacement":   {"a: \ufffd", ""},
		"wide":          {"a: [" + strings.Repeat("1,", 100_000) + "]", ""},
		"many problems": {strings.Repeat("x: !y 1\n", 2), "config.yaml:1:4: x: has the tag !y, which has no meaning here: remove it\nconfig.yaml:2:1: x: occurs twice, first in line 1: remove one\nconfig.yaml:2:4: x: has the tag !y, which has no meaning here: remove it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, problems := config.ParseNode("config.yaml", []byte(tt.yaml))
			if got := problems.Error(); got != tt.want {
				t.Errorf("got  %.300s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	text := "version: 1\nstate: {dir: state}\nsources: {pods: {resource: v1/pods}}\nsinks: {out: {stdout: {}}}\nroutes: [{name: r, from: pods, to: out}]\n"
	write(t, path, text)
	cfg, problems := config.Load(path, config.Policy{})
	must.Succeed(t, problems.Err())
	if cfg.State.Dir != filepath.Join(dir, "state") || len(cfg.Hash) != 12 {
		t.Errorf("%+v", cfg)
	}
	write(t, path, text+"# more\n")
	if again, _ := config.Load(path, config.Policy{}); again == nil || again.Hash == cfg.Hash {
		t.Error("another text has the same hash")
	}
	must.Succeed(t, os.Remove(path))
	cfg, problems = config.Load(path, config.Policy{})
	if cfg != nil || problems.Error() != path+": there is no such file or folder: give another path, or write a configuration with router init" {
		t.Error(problems)
	}
	if _, problems = config.Load(dir, config.Policy{}); len(problems) != 1 {
		t.Error(problems)
	}
}

// TestPartial: a configuration with problems is returned too, for further checks.
func TestPartial(t *testing.T) {
	cfg, problems := config.Parse("config.yaml", []byte("version: 3\nsinks: {out: {stdout: {a: 1}}, bad: {}}\nroutes: [{filter: {}}, 1]"), config.Policy{})
	if len(problems) == 0 || cfg == nil || cfg.Sinks["out"].Kind != "stdout" || len(cfg.Routes) != 2 || cfg.Routes[0].Filter != nil {
		t.Errorf("%+v\n%v", cfg, problems)
	}
	if cfg, problems := config.Parse("config.yaml", []byte("a: ["), config.Policy{}); cfg != nil || len(problems) != 1 {
		t.Error(cfg, problems)
	}
}

func TestProblems(t *testing.T) {
	ps := config.Problems{
		{File: "b", Line: 2, Column: 1, Message: "4"},
		{File: "b", Line: 1, Column: 20_000, Path: "x", Message: "2"},
		{File: "b", Line: 2, Message: "3"},
		{File: "b", Line: 2, Column: 1, Message: "4"},
		{File: "a", Message: "1"},
	}
	if got, want := ps.Error(), "a: 1\nb:1:20000: x: 2\nb:2: 3\nb:2:1: 4"; got != want {
		t.Error(got)
	}
	if config.Problems(nil).Err() != nil || ps.Err() == nil {
		t.Error("Err")
	}
}

func TestParseResource(t *testing.T) {
	for in, want := range map[string]string{
		"v1/pods": "|v1|pods", "apps/v1/deployments": "apps|v1|deployments", "a.b-c.io/v1beta1/x": "a.b-c.io|v1beta1|x",
		"": "error", "pods": "error", "v2/pods": "error", "/v1/pods": "error", "a//b": "error", "a/b/c/d": "error", "v1/Pods": "error",
		"v1/pods/log": "error", "apps/v1/": "error", "a b/v1/c": "error",
	} {
		group, version, resource, err := config.ParseResource(in)
		got := group + "|" + version + "|" + resource
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s %v, want %s", in, got, err, want)
		}
	}
}
