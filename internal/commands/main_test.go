package commands

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/plugins/all"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

// asProgram makes the test binary the router.
const asProgram = "ROUTER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(components()))
	}
	leaks.Main(m)
}

// components returns the components of the router of this project.
func components() compile.Components {
	made, err := Components(all.Kinds()...)
	if err != nil {
		panic(err)
	}
	return made
}

// run runs a command of the router of this project.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runProgram(ctx, components(), args, stdout, stderr)
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		config string
		code   int
		stdout string // contained
		stderr string // contained
	}{
		{name: "no arguments", code: 2, stderr: "Usage:"},
		{name: "help", args: []string{"help"}, code: 0, stdout: "Usage:"},
		{name: "-h", args: []string{"-h"}, code: 0, stdout: "Usage:"},
		{name: "version", args: []string{"version"}, code: 0, stdout: "router dev go1"},
		{name: "-version", args: []string{"-version"}, code: 0, stdout: "router dev go1"},
		{name: "version as JSON", args: []string{"version", "-o", "json"}, code: 0, stdout: `  "handlers": {
    "process": {
      "deltarouter.plugin.v1": 1
    },
    "wasm": {
      "rtr_v1": 1
    }
  },
  "stateFormat": `},
		{name: "unknown flag", args: []string{"-confg", "x"}, code: 2, stderr: "-confg"},
		{name: "unknown command", args: []string{"chek"}, code: 2, stderr: `there is no command "chek"; did you mean "check"? See router help`},
		{name: "no config", args: []string{"-log-level", "info"}, code: 2, stderr: "config.yaml: "},
		{name: "bad level", args: []string{"-log-level", "loud", "-config", "x"}, code: 2, stderr: "log-level"},
		{name: "missing file", args: []string{"-config", "does-not-exist.yaml"}, code: 2, stderr: "does-not-exist.yaml"},
		{name: "check a good file", args: []string{"check"}, config: good, code: 0, stdout: "ok"},
		{
			name: "check reports everything at once", args: []string{"check"}, config: bad, code: 2,
			stderr: "config.yaml:4:40: routes[0].filter", // the filter's column
		},
		{name: "check reports the sink's mistake too", args: []string{"check"}, config: bad, code: 2, stderr: "config.yaml:3:"},
		{name: "run refuses it too", config: bad, code: 2, stderr: "obj"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if c.config != "" {
				file := filepath.Join(t.TempDir(), "config.yaml")
				must.Succeed(t, os.WriteFile(file, []byte(c.config), 0o600))
				args = append(args, "-config", file)
			}
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), args, &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, c.code, &stderr)
			}
			if !strings.Contains(stdout.String(), c.stdout) {
				t.Errorf("stdout is %q, want %q in it", &stdout, c.stdout)
			}
			if !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("stderr is %q, want %q in it", &stderr, c.stderr)
			}
		})
	}
}

const good = `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, filter: object.metadata.name == "a", to: out}]
`

const bad = `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {colour: red}}}
routes: [{name: r, from: pods, filter: obj.metadata.name == "a", to: out}]
`

// TestShippedConfigs shows that all shipped configurations are valid.
func TestShippedConfigs(t *testing.T) {
	t.Chdir("../..")
	readme, err := os.ReadFile("README.md")
	must.Succeed(t, err)
	_, rest, ok := strings.Cut(string(readme), "```yaml\n")
	if !ok {
		t.Fatal("README.md has no YAML example")
	}
	example, _, _ := strings.Cut(rest, "```")
	texts := map[string]string{"README.md": example, "config.yaml": mustRead(t, "config.yaml")}
	examples, err := filepath.Glob("examples/configs/*.yaml")
	if err != nil || len(examples) < 5 {
		t.Fatal(examples, err)
	}
	for _, name := range examples {
		if !strings.HasSuffix(name, "_test.yaml") {
			texts[name] = mustRead(t, name)
		}
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			// make builds the guest; this test only needs a module at its place.
			dir := t.TempDir()
			module := filepath.Join(dir, "guest.wasm")
			must.Succeed(t, os.WriteFile(module, working(), 0o600))
			file := filepath.Join(dir, "config.yaml")
			must.Succeed(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "./bin/plugins/restart-alert.wasm", module)), 0o600))
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{"check", "-config", file}, &stdout, &stderr)
			if code != 0 {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
			if strings.Contains(stdout.String()+stderr.String(), "may cost") {
				t.Error(&stderr)
			}
			if name == "config.yaml" && strings.Contains(stdout.String()+stderr.String(), "warning") {
				t.Errorf("the configuration of make run has warnings:\n%s%s", &stdout, &stderr)
			}
		})
	}
}

// checkRun runs a command and checks its exit code and its output.
func checkRun(t *testing.T, args []string, code int, inStdout, inStderr string) (stdout string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := run(t.Context(), args, &out, &errs)
	if got != code || !strings.Contains(out.String(), inStdout) || !strings.Contains(errs.String(), inStderr) {
		t.Errorf("router %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, code, &out, &errs)
	}
	return out.String()
}

// serveControl serves the control API on a socket until the test ends.
func serveControl(t *testing.T, cfg api.ControlConfig) (addr string) {
	t.Helper()
	cfg.Addr, cfg.Log = "unix:"+filepath.Join(t.TempDir(), "api.sock"), slog.New(slog.DiscardHandler)
	server := api.NewControl(cfg)
	must.Succeed(t, server.Start(t.Context()))
	t.Cleanup(func() { must.Report(t, server.Close(context.WithoutCancel(t.Context()))) })
	return cfg.Addr
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(text)
}

// TestCheckQuotes shows that every mistake and warning has its position, also inside blocks, and a
// mark under the word.
func TestCheckQuotes(t *testing.T) {
	// Guarantee: typed-expressions
	const config = `version: 1
define:
  crashing: |
    object.status.containerStatuses.exists(c,
      c.restartCont > 3)
sources:
  pods: {resource: v1/pods}
  nodes: {resource: v1/nodes}
  widgets: {resource: example.com/v1/widgets}
sinks: {out: {discard: {}}}
routes:
  - {name: a, from: [pods, nodes], filter: object.spec.unschedulable, to: out}
  - name: b
    from: nodes
    filter: >-
      object.status.conditions.exists(c,
      c.type == "Ready") &&
      object.spec.podCIDRS == []
    to: out
  - {name: c, from: pods, filter: crashing, to: out}
  - {name: d, from: widgets, filter: object.any.thing == "goes", to: out}
  - {name: e, from: pods, filter: object.spec.nodeName == "n1", to: out}
`
	const want = `config.yaml:5:9: define.crashing: core.v1.ContainerStatus has no field "restartCont"; did you mean "restartCount"? (for source "pods", in routes[2].filter)
        c.restartCont > 3)
          ^^^^^^^^^^^
config.yaml:9:23: warning: sources.widgets.resource: the schema of example.com/v1/widgets is unknown, so the fields in expressions about it are not checked: router check -connect asks the cluster for it, router schema pull saves it
config.yaml:12:56: routes[0].filter: core.v1.PodSpec has no field "unschedulable" (for source "pods")
    - {name: a, from: [pods, nodes], filter: object.spec.unschedulable, to: out}
                                                         ^^^^^^^^^^^^^
config.yaml:18:19: routes[1].filter: core.v1.NodeSpec has no field "podCIDRS"; did you mean "podCIDR"?
        object.spec.podCIDRS == []
                    ^^^^^^^^
config.yaml:22:47: warning: routes[4].filter: object.spec.nodeName may be absent, and nothing matches then; if that is not intended: object.spec.?nodeName.orValue("")
    - {name: e, from: pods, filter: object.spec.nodeName == "n1", to: out}
                                                ^^^^^^^^
`
	t.Chdir(t.TempDir())
	must.Succeed(t, os.WriteFile("config.yaml", []byte(config), 0o600))
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &stdout, &stderr); code != cli.CodeUsage || stderr.String() != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, &stderr, want)
	}
	// Warnings alone do not make a configuration invalid.
	fine := strings.NewReplacer("restartCont ", "restartCount ", "[pods, nodes]", "nodes", "podCIDRS", "podCIDRs").Replace(config)
	must.Succeed(t, os.WriteFile("config.yaml", []byte(fine), 0o600))
	stderr.Reset()
	code := run(t.Context(), []string{"check", "-config", "config.yaml"}, &stdout, &stderr)
	if code != cli.CodeOK || strings.Count(stderr.String(), ": warning: ") != 7 || stdout.String() != "config.yaml: ok\n" {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}
