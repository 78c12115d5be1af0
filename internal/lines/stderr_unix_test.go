//go:build unix

package lines_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestLogStderr shows that the log contains the stderr of a kubeconfig's credential plugin, and of
// other programs that libraries start.
func TestLogStderr(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	before, log := os.Stderr, &bytes.Buffer{}
	end, err := lines.LogStderr(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
	must.Succeed(t, err)
	// client-go caches a plugin by its arguments.
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %q, args: ["-c", "echo the plugin is unwell >&2; exit 1", %q]}}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, sh, t.TempDir())
	must.Succeed(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	client, err := informer.NewClient(config.Cluster{Kubeconfig: kubeconfig}, config.Policy{AllowExec: true})
	if err == nil {
		_, err = client.HTTP().Get("https://127.0.0.1:1/") //nolint:bodyclose // there is none
		client.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "exec") {
		t.Errorf("the plugin did not fail: %v", err)
	}
	fmt.Fprint(os.Stderr, "\x1b[31mlast\n\nwithout an end")
	end()
	for _, want := range []string{`"the plugin is unwell"`, "a library or a credential plugin says", "last", "without an end"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
	if strings.Contains(log.String(), "\x1b") || os.Stderr != before {
		t.Error("it is raw, or stderr was not given back")
	}
}
