package commands

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// aloneConfig has the handler that every SDK has for its conformance.
const aloneConfig = `version: 1
sources: {pods: {resource: v1/pods}}
handlers:
  summary: {wasm: {module: %s, config: {note: note}}}
sinks: {none: {discard: {}}}
routes: [{name: r, from: pods, handler: summary, to: none}]
`

const alonePods = `apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web, annotations: {note: "first\u001b"}}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web, annotations: {verdict: fail}}
`

// writeAlone writes a configuration and its pods into this folder.
func writeAlone(t *testing.T) {
	t.Helper()
	module, err := filepath.Abs("../../sdk/conformance/c/summary.wasm")
	must.Succeed(t, err)
	t.Chdir(t.TempDir())
	must.Succeed(t, os.WriteFile("config.yaml", fmt.Appendf(nil, aloneConfig, module), 0o600))
	must.Succeed(t, os.WriteFile("pods.yaml", []byte(alonePods), 0o600))
	first, _, _ := strings.Cut(alonePods, "---")
	must.Succeed(t, os.WriteFile("pod.yaml", []byte(first), 0o600))
	must.Succeed(t, os.WriteFile("node.yaml", []byte("{apiVersion: v1, kind: Node, metadata: {name: n}}"), 0o600))
	must.Succeed(t, os.WriteFile("none.yaml", []byte("# nothing\n"), 0o600))
}

func TestPluginRun(t *testing.T) {
	writeAlone(t)
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"run pod.yaml", cli.CodeOK, "added pods shop/web: ok\n  summary shop/web {", ""},
		{"run pods.yaml", cli.CodeFailed, "updated pods shop/web: fail: wasm \"summary\": as you wish\n", ""},
		{"run -o json pod.yaml", cli.CodeOK, `{"delta":"added pods shop/web","verdict":"ok","events":[{"type":"summary","subject":"shop/web","data":{`, ""},
		{"run", cli.CodeUsage, "", "name a file with objects"},
		{"run absent.yaml", cli.CodeUsage, "", "absent.yaml"},
		{"run node.yaml", cli.CodeUsage, "", "node.yaml: object 1: no source of the configuration has objects of v1 Node; it has pods"},
		{"run -handler sumary pod.yaml", cli.CodeUsage, "", `did you mean "summary"?`},
		{"bench -time 1ms pod.yaml", cli.CodeOK, "handler summary (wasm), 1 delta with ", ""},
		{"bench -time 1ms pod.yaml", cli.CodeOK, "part of limits.fuel", ""},
		{"bench -time 1ms pods.yaml", cli.CodeFailed, "", "updated pods shop/web: verdict fail: wasm \"summary\": as you wish\n"},
		{"bench -time 1ms none.yaml", cli.CodeUsage, "", "none.yaml has no objects"},
		{"bench -batch 0 pod.yaml", cli.CodeUsage, "", "-batch must be 1 to "},
		{"bench -time 0s pod.yaml", cli.CodeUsage, "", "-time must be more than 0"},
		{"bench", cli.CodeUsage, "", "name one file with objects"},
		{"build a b", cli.CodeUsage, "", `unexpected argument "b": name one folder`},
		{"build", cli.CodeUsage, "", "has no source of a handler"},
	} {
		t.Run(c.args, func(t *testing.T) {
			checkRun(t, append([]string{"plugin"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
		})
	}
}
