package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestSinksExamples shows that router check finds no mistake and no warning in any example of
// docs/SINKS.md.
func TestSinksExamples(t *testing.T) {
	text := mustRead(t, "../../docs/SINKS.md")
	section, n := "", 0
	for _, m := range regexp.MustCompile("(?sm)^##+ ([^\n]*)$|^```yaml\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			section = m[1]
			continue
		}
		n++
		config := m[2]
		if strings.HasPrefix(config, "apiVersion:") { // for the cluster: test/e2e applies it
			continue
		}
		if !strings.Contains(config, "\nroutes:") {
			name := regexp.MustCompile(`(?m)^  ([a-z]+):`).FindStringSubmatch(config)[1]
			config += "routes: [{name: r, from: pods, to: " + name + "}]\n"
		}
		t.Run(section, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "config.yaml")
			for name, content := range map[string][]byte{"config.yaml": []byte(complete(config)), "guest.wasm": working()} {
				must.Succeed(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
			}
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), []string{"check", "-config", file}, &stdout, &stderr); code != cli.CodeOK || withoutSecrets(stderr.String()) != "" {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
	if want := strings.Count(text, "```yaml"); n != want || n < 6 {
		t.Errorf("%d of %d examples were checked", n, want)
	}
}
