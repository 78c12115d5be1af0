package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/routertest"
)

// TestExampleCases runs the cases of every example, and bounds the length of the examples.
func TestExampleCases(t *testing.T) {
	t.Chdir("../..")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"test", "-v", "examples/configs/..."}, &stdout, &stderr); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
	files, err := filepath.Glob("examples/configs/*.yaml")
	if err != nil || len(files) < 10 {
		t.Errorf("only these examples: %v, %v", files, err)
	}
	for _, file := range files {
		if n := strings.Count(mustRead(t, file), "\n"); n > 40 {
			t.Errorf("%s has %d lines: an example has at most 40", file, n)
		}
		if strings.HasSuffix(file, "_test.yaml") {
			continue
		}
		if !strings.Contains(stdout.String(), "ok   "+strings.TrimSuffix(file, ".yaml")+"_test.yaml ") {
			t.Errorf("%s has no cases", file)
		}
		if code := run(t.Context(), []string{"check", "-config", file}, &stdout, &stderr); code != 0 {
			t.Errorf("%s: exit code %d\n%s", file, code, &stderr)
		}
	}
}

// TestConfigCases runs the cases of config.yaml, with its guest.
func TestConfigCases(t *testing.T) {
	module := routertest.Guest(t, "restart-alert")
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", "config_test.yaml"} {
		text := strings.ReplaceAll(mustRead(t, "../../"+name), "./bin/plugins/restart-alert.wasm", module)
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"test"}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "ok   config_test.yaml 5 cases ") {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
	// Nothing may remain, not even a state folder.
	if left, err := filepath.Glob("*"); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTestExitCodes(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		"good.yaml": good, "bad.yaml": bad,
		"good_test.yaml": "cases: [{name: none, expect: none}]",
		"fail_test.yaml": "config: good.yaml\ncases: [{name: some, expect: [{route: r, any: true}]}, {name: none, expect: none}]",
		"bad_test.yaml":  "cases: [{name: none, expect: none}]",
	} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help", 0, "-update", ""},
		{"-h", 0, "Usage:", ""},
		{"-runn x", 2, "", "-runn"},
		{"-run (", 2, "", "-run (: write a regular expression: missing closing )"},
		{"good_test.yaml", 0, "ok   good_test.yaml 1 case ", ""},
		{"-v good_test.yaml", 0, "--- PASS: good_test.yaml:1: none (", ""},
		{"-run nope good_test.yaml", 0, "ok   good_test.yaml [no cases to run]", ""},
		{"fail_test.yaml good_test.yaml", 1, "-- route: r\n", ""},
		{"fail_test.yaml -run none", 0, "ok   fail_test.yaml 1 case ", ""},
		{"-run none fail_test.yaml", 0, "ok   fail_test.yaml 1 case ", ""},
		{"", 2, "FAIL bad_test.yaml [invalid]", ""},
		{"none_test.yaml", 2, "", "there is no file or folder none_test.yaml"},
	} {
		t.Run(c.args, func(t *testing.T) {
			checkRun(t, append([]string{"test"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
		})
	}
}
