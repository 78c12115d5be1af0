package commands

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestCredentialPlugins shows that no command runs the program in a kubeconfig unless a flag
// permits it.
func TestCredentialPlugins(t *testing.T) {
	// Guarantee: no-credential-plugins, check-runs-nothing
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	kubeconfig := func(name, user string) string {
		return write(name, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}],
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {%s}}]}`, server.URL, user))
	}
	ran := filepath.Join(dir, "ran")
	plugin := kubeconfig("plugin", fmt.Sprintf(`exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: touch, args: [%q]}`, ran))
	token := kubeconfig("token", "token: t")
	config := func(name, cluster, sink string) string {
		return write(name, fmt.Sprintf(`version: 1
cluster: {kubeconfig: %q}
sources: {pods: {resource: v1/pods}}
sinks: {out: {kubernetes: {kubeconfig: %q, allow: [{resource: v1/configmaps, verbs: [apply]}]}}}
routes: [{name: r, from: pods, to: out}]
`, cluster, sink))
	}
	source, sink := config("source.yaml", plugin, token), config("sink.yaml", token, plugin)
	for _, tt := range []struct {
		args []string
		runs bool
	}{
		{[]string{"check", "-config", source}, false},
		{[]string{"check", "-connect", "-config", source}, false},
		{[]string{"check", "-connect", "-config", sink}, false},
		{[]string{"-config", source}, false},
		{[]string{"-config", sink}, false},
		{[]string{"record", "-o", filepath.Join(dir, "recording"), "-config", source}, false},
		{[]string{"schema", "pull", "-o", dir, "-config", source}, false},
		{[]string{"schema", "pull", "-o", dir, "-kubeconfig", plugin}, false},
		{[]string{"check", "-connect", "-allow-exec", "-config", source}, true},
		{[]string{"check", "-connect", "-allow-exec", "-config", sink}, true},
		{[]string{"schema", "pull", "-o", dir, "-allow-exec", "-kubeconfig", plugin}, true},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tt.args, &stdout, &stderr)
			_, err := os.Stat(ran)
			if (err == nil) != tt.runs {
				t.Errorf("run: %t; exit code %d: %s", err == nil, code, &stderr)
			}
			_ = os.Remove(ran)
			refused := strings.Contains(stderr.String(), "start the router with -allow-exec")
			if offline := len(tt.args) == 3 && tt.args[0] == "check"; refused == (tt.runs || offline) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}

// TestFoldersOfKubeconfigs shows that no command reads a kubeconfig outside of the permitted
// folders.
func TestFoldersOfKubeconfigs(t *testing.T) {
	// Guarantee: folders
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	text := "version: 1\ncluster: {kubeconfig: /elsewhere/kubeconfig}\nsources: {pods: {resource: v1/pods}}\nsinks: {out: {stdout: {}}}\nroutes: [{name: r, from: pods, to: out}]\n"
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	for _, command := range [][]string{nil, {"check"}, {"check", "-connect"}, {"record", "-o", filepath.Join(dir, "recording")}, {"schema", "pull", "-o", dir}} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append(command, "-file-dir", dir, "-config", file), &stdout, &stderr)
		if code != cli.CodeUsage || !strings.Contains(stderr.String(), "config.yaml:2:23: cluster.kubeconfig: /elsewhere/kubeconfig is in none of the folders") {
			t.Errorf("%v: exit code %d: %s", command, code, &stderr)
		}
	}
}

// TestPolicyFlags shows that the start reports a folder that is none.
func TestPolicyFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, nil, 0o600))
	for _, flag := range []string{"-plugin-dir", "-secret-dir", "-file-dir"} {
		for dir, want := range map[string]string{"": "it is empty: give a folder", file: file + ": it is not a folder", file + "2": "there is no such folder"} {
			for _, command := range [][]string{nil, {"check"}, {"test"}, {"replay"}, {"record"}, {"schema", "pull"}} {
				var stdout, stderr bytes.Buffer
				if code := run(t.Context(), append(command, flag, dir), &stdout, &stderr); code != cli.CodeUsage || !strings.Contains(stderr.String(), want) {
					t.Errorf("%v %s %q: exit code %d: %s", command, flag, dir, code, &stderr)
				}
			}
		}
	}
}
