package commands

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

// module is a kind of handler that router check opens, too, as it does modules.
type module struct{ fakekind.Handler }

// Load implements plugins.Loader.
func (k module) Load(ctx context.Context, node config.Node, env plugins.HandlerEnv) config.Problems {
	_, err := k.Open(ctx, node, env)
	return config.Problems{node.Problemf("%v", err)}
}

var errRecorded = errors.New("the folder is known now")

// folderOf runs a command, and returns the folder for compiled modules that its handler gets.
func folderOf(t *testing.T, args ...string) (folder, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	folder = "no handler was opened"
	kind := module{fakekind.Handler{
		Definition: fakekind.Define("module"), OpenFunc: func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
			folder = env.Cache
			cancel()
			return nil, errRecorded
		},
	}}
	made := compile.Components{Handlers: []plugins.HandlerKind{kind}, Sinks: []plugins.SinkKind{stdout.Kind()}}
	var out, errors bytes.Buffer
	if code := runProgram(ctx, made, args, &out, &errors); strings.HasPrefix(folder, "no ") {
		t.Fatalf("%q ended with %d: %s%s", args, code, &out, &errors)
	}
	return folder, errors.String()
}

// TestCompiledFolder: every command that runs modules keeps their code in the folder of the user,
// or in the named one, or nowhere; a router without a folder of the user keeps it in state.dir. A
// folder that others may change is not used, and the log says so.
func TestCompiledFolder(t *testing.T) {
	// Guarantee: compiled-private
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"config.yaml": `version: 1
cluster: {kubeconfig: kubeconfig}
state: {dir: state}
sources: {pods: {resource: v1/pods}}
handlers: {h: {module: {}}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, handler: h, to: out}]
`,
		"config_test.yaml": `cases: [{name: a, given: {deltas: [{source: pods, added: {metadata: {name: a}}}]}, expect: none}]`,
		"kubeconfig": `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`,
		"objects.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: a}}`,
	} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	user, named, open := filepath.Join(dir, "home"), filepath.Join(dir, "named"), filepath.Join(dir, "open")
	must.Succeed(t, os.Mkdir(open, 0o700))
	must.Succeed(t, os.Chmod(open, 0o707))
	for _, test := range []struct {
		args    []string
		nowhere string // the folder with -compiled none
	}{
		{[]string{"check"}, ""},
		{[]string{"test"}, "router-test-"},
		{[]string{"run"}, ""},
		{[]string{"plugin", "run", "objects.yaml"}, ""},
	} {
		t.Run(test.args[0], func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", user)
			if got, _ := folderOf(t, test.args...); got != filepath.Join(user, "deltarouter") {
				t.Errorf("without a flag: %q", got)
			}
			with := func(folder string) []string {
				last := len(test.args)
				if test.args[0] == "plugin" {
					last--
				}
				return append(append(append([]string{}, test.args[:last]...), "-compiled", folder), test.args[last:]...)
			}
			if got, _ := folderOf(t, with("named")...); got != named {
				t.Errorf("with a name: %q", got)
			}
			isNone := func(got string) bool {
				return got == test.nowhere || test.nowhere != "" && strings.HasPrefix(filepath.Base(got), test.nowhere)
			}
			if got, _ := folderOf(t, with("none")...); !isNone(got) {
				t.Errorf("with none: %q", got)
			}
			if got, log := folderOf(t, with(open)...); !isNone(got) || strings.Count(log, "every user of this machine may write to "+open) != 1 {
				t.Errorf("of a folder of everybody: %q\n%s", got, log)
			}
		})
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, log := folderOf(t, "run"); got != filepath.Join("state", "cache") || strings.Contains(log, "compiled") {
		t.Errorf("without a folder of the user: %q\n%s", got, log)
	}
}
