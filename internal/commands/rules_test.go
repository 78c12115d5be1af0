package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestRules runs the cases of every rule in examples/rules. A rule is short, router check has no
// finding, and docs/RULES.md contains its exact text.
func TestRules(t *testing.T) {
	t.Chdir("../..")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"test", "-v", "examples/rules/..."}, &stdout, &stderr); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
	files, err := filepath.Glob("examples/rules/*.yaml")
	must.Succeed(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.yaml") })
	if len(files) < 10 {
		t.Error("there are only", files)
	}
	told := shownIn(t, "rules")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !strings.Contains(stdout.String(), "ok   examples/rules/"+name+"_test.yaml ") {
			t.Errorf("%s has no cases", file)
		}
		var out, complaints bytes.Buffer
		if code := run(t.Context(), []string{"check", "-config", file}, &out, &complaints); code != 0 || withoutSecrets(complaints.String()) != "" {
			t.Errorf("%s: exit code %d\n%s", file, code, &complaints)
		}
		_, route, ok := strings.Cut(mustRead(t, file), "\nroutes:\n")
		if n := strings.Count(route, "\n"); !ok || n > 12 || strings.Count(route, "- name: ") != 1 {
			t.Errorf("%s: the rule has %d lines: it has at most 12, and stands last", file, n)
		}
		if want := ruleOf(t, file); told[name] != want {
			t.Errorf("docs/RULES.md has of %s\n%s\nnot\n%s", name, told[name], want)
		}
		delete(told, name)
	}
	for name := range told {
		t.Errorf("docs/RULES.md has a rule %s that is not in examples/rules", name)
	}
}

// TestRuleOfReadme shows that README.md and docs/RULES.md begin with the same rule, which router
// check accepts.
func TestRuleOfReadme(t *testing.T) {
	var rules []string
	for _, file := range []string{"../../README.md", "../../docs/RULES.md"} {
		_, rest, _ := strings.Cut(mustRead(t, file), "```yaml\n")
		config, _, _ := strings.Cut(rest, "```\n")
		_, rule, _ := strings.Cut(config, "routes:\n")
		rules = append(rules, "routes:\n"+rule)
	}
	if rules[0] != rules[1] || strings.Count(rules[0], "\n") > 10 {
		t.Errorf("README.md has\n%s\ndocs/RULES.md\n%s", rules[0], rules[1])
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "version: 1\nsources: {nodes: {resource: v1/nodes}}\nsinks: {pager: {stdout: {}}}\n" + rules[0]
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check", "-config", file}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("exit code %d\n%s", code, &stderr)
	}
}

// ruleOf returns the part of a rule's file that docs/RULES.md shows: from its defines, or its
// routes.
func ruleOf(t *testing.T, file string) string {
	text := mustRead(t, file)
	at := regexp.MustCompile(`(?m)^(define|routes):$`).FindStringIndex(text)
	if at == nil {
		t.Fatalf("%s has no routes", file)
	}
	return text[at[0]:]
}

// TestRecipes runs the cases of every recipe in examples/recipes. router check has no finding, and
// docs/RULES.md contains the text behind the version.
func TestRecipes(t *testing.T) {
	t.Chdir("../..")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"test", "-v", "examples/recipes/..."}, &stdout, &stderr); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
	files, err := filepath.Glob("examples/recipes/*_test.yaml")
	must.Succeed(t, err)
	if len(files) < 5 {
		t.Error("there are only", files)
	}
	shown := shownIn(t, "recipes")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), "_test.yaml")
		config := "examples/recipes/" + name + ".yaml"
		var out, complaints bytes.Buffer
		if code := run(t.Context(), []string{"check", "-config", config}, &out, &complaints); code != 0 || complaints.Len() > 0 {
			t.Errorf("%s: exit code %d\n%s", config, code, &complaints)
		}
		if _, want, _ := strings.Cut(mustRead(t, config), "\nversion: 1\n"); shown[name] != want {
			t.Errorf("docs/RULES.md has of %s\n%s\nnot\n%s", name, shown[name], want)
		}
		delete(shown, name)
	}
	for name := range shown {
		t.Errorf("docs/RULES.md has a recipe %s that has no cases in examples/recipes", name)
	}
}

// shownIn returns the configurations of a folder of examples in docs/RULES.md, by the name of their
// files.
func shownIn(t *testing.T, folder string) map[string]string {
	all := make(map[string]string)
	rule := regexp.MustCompile("(?s)\n### [^\n]*\n\n[^`]*?\\(\\.\\./examples/" + folder + "/([a-z-]+)\\.yaml\\)[^\n]*\n.*?```yaml\n(.*?)```\n")
	for _, found := range rule.FindAllStringSubmatch(mustRead(t, "docs/RULES.md"), -1) {
		all[found[1]] = found[2]
	}
	return all
}
