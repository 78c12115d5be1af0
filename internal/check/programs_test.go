package check_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/compile"
	conf "github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestPrograms shows that programs are checked without being started, and that each problem has its
// position.
func TestPrograms(t *testing.T) {
	// Guarantee: programs-pinned, no-programs, check-runs-nothing
	dir := t.TempDir()
	text := []byte("#!/bin/sh\ntouch " + dir + "/ran\n")
	sum := sha256.Sum256(text)
	right, wrong := hex.EncodeToString(sum[:]), strings.Repeat("0", 64)
	for _, name := range []string{"plugins/good", "plugins/sub/good", "elsewhere/bad", "plugins-too/bad", "plugins/unable"} {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Succeed(t, os.WriteFile(file, text, map[bool]os.FileMode{true: 0o600, false: 0o700}[name == "plugins/unable"]))
	}
	for link, to := range map[string]string{"plugins/out": "../elsewhere/bad", "elsewhere/in": "../plugins/good"} {
		must.Succeed(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	none := "./elsewhere/bad is in none of the folders of programs (-plugin-dir ./plugins): move it there, or start the router with another -plugin-dir"
	for _, tt := range []struct{ dirs, command, sum, want string }{
		{"./plugins", "./plugins/good", right, ""},
		{"./plugins", "./plugins/good", strings.ToUpper(right), ""},
		{"./elsewhere ./plugins/sub", "[./plugins/sub/good, -v, x]", right, ""},
		// The real path of the program counts, not the path in the configuration.
		{"./plugins", "./elsewhere/in", right, ""},
		{"./plugins", "./elsewhere/bad", right, "8:26: handlers.h.process.command: " + none},
		{"./plugins", "[./elsewhere/bad, x]", right, "8:27: handlers.h.process.command[0]: " + none},
		{"./plugins", "./plugins/../elsewhere/bad", right, "8:26: handlers.h.process.command: " + none},
		{"./plugins", "./plugins-too/bad", right, "8:26: handlers.h.process.command: " + strings.Replace(none, "elsewhere", "plugins-too", 1)},
		{"./plugins", "./plugins/out", right, "8:26: handlers.h.process.command: " + strings.Replace(none, "elsewhere/bad", "plugins/out", 1)},
		{"./plugins", "./plugins/unable", right, "8:26: handlers.h.process.command: ./plugins/unable is not executable: chmod +x it"},
		{"./plugins", "./plugins/sub", right, "8:26: handlers.h.process.command: ./plugins/sub is not a file"},
		{"./plugins", "./plugins/none", right, "8:26: handlers.h.process.command: there is no program ./plugins/none"},
		{"./plugins", "sh", right, "8:26: handlers.h.process.command: there is no program ./sh"},
		{
			"", "./plugins/good", right,
			"8:26: handlers.h.process.command: programs are run only from folders that the router was started with: add -plugin-dir FOLDER to its command line",
		},
		{"./plugins", "./plugins/good", wrong, "8:64: handlers.h.process.sha256: ./plugins/good differs from the configured program: its sha256 is " + right},
		{"./plugins", "./plugins/good", "abc", "8:64: handlers.h.process.sha256: must be 64 hexadecimal digits, as sha256sum prints them"},
	} {
		t.Run(tt.command+" of "+tt.dirs, func(t *testing.T) {
			config := filepath.Join(dir, "config.yaml")
			yaml := fmt.Sprintf(`version: 1
sources:
  pods: {resource: v1/pods}
sinks:
  out: {discard: {}}
routes: [{name: r, from: pods, handler: h, to: out}]
handlers:
  h: {process: {command: %s, sha256: %s}}
`, tt.command, tt.sum)
			must.Succeed(t, os.WriteFile(config, []byte(yaml), 0o600))
			var policy conf.Policy
			for _, name := range strings.Fields(tt.dirs) {
				policy.PluginDirs = append(policy.PluginDirs, filepath.Join(dir, name))
			}
			found := check.File(t.Context(), config, compile.Components{
				Policy:   policy,
				Handlers: []plugins.HandlerKind{process.Kind()}, Sinks: []plugins.SinkKind{discard.Kind()},
			}, check.Options{})
			got := ""
			for _, p := range found.Problems {
				got += strings.ReplaceAll(strings.TrimPrefix(p.Error(), config+":"), dir, ".")
			}
			want := tt.want
			if strings.Contains(want, ".sha256") { // the column depends on the text before it
				_, got, _ = strings.Cut(got, ": ")
				_, want, _ = strings.Cut(want, ": ")
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program was run")
	}
}
