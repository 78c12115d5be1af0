package app_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/app"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/discard"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
)

// TestPrograms: what a configuration may run is found out without running it, and a mistake is told with its place.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	text := []byte("#!/bin/sh\ntouch " + dir + "/ran\n")
	sum := sha256.Sum256(text)
	right, wrong := hex.EncodeToString(sum[:]), strings.Repeat("0", 64)
	for _, name := range []string{"plugins/good", "plugins/sub/good", "elsewhere/bad", "plugins-too/bad", "plugins/unable"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, map[bool]os.FileMode{true: 0o600, false: 0o700}[name == "plugins/unable"]); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"plugins/out": "../elsewhere/bad", "elsewhere/in": "../plugins/good"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	none := "./elsewhere/bad is in none of the folders of plugins.dirs (./plugins): move it there, or add its folder"
	for _, tt := range []struct{ dirs, command, sum, want string }{
		{"./plugins", "./plugins/good", right, ""},
		{"./plugins", "./plugins/good", strings.ToUpper(right), ""},
		{"[./elsewhere, ./plugins/sub]", "[./plugins/sub/good, -v, x]", right, ""},
		{"./plugins", "./elsewhere/in", right, ""}, // it is the program that counts, not how one gets there
		{"./plugins", "./elsewhere/bad", right, "9:26: handlers.h.process.command: " + none},
		{"./plugins", "[./elsewhere/bad, x]", right, "9:27: handlers.h.process.command[0]: " + none},
		{"./plugins", "./plugins/../elsewhere/bad", right, "9:26: handlers.h.process.command: " + none},
		{"./plugins", "./plugins-too/bad", right, "9:26: handlers.h.process.command: " + strings.Replace(none, "elsewhere", "plugins-too", 1)},
		{"./plugins", "./plugins/out", right, "9:26: handlers.h.process.command: " + strings.Replace(none, "elsewhere/bad", "plugins/out", 1)},
		{"./plugins", "./plugins/unable", right, "9:26: handlers.h.process.command: ./plugins/unable is not executable: chmod +x it"},
		{"./plugins", "./plugins/sub", right, "9:26: handlers.h.process.command: ./plugins/sub is not a file"},
		{"./plugins", "./plugins/none", right, "9:26: handlers.h.process.command: the program cannot be read: lstat ./plugins/none: no such file or directory"},
		{"./plugins", "sh", right, "9:26: handlers.h.process.command: the program cannot be read: lstat ./sh: no such file or directory"},
		{
			"[]", "./plugins/good", right,
			"9:26: handlers.h.process.command: programs are run only out of the folders of plugins.dirs, and there are none: add plugins: {dirs: [FOLDER]}",
		},
		{"./plugins", "./plugins/good", wrong, "9:64: handlers.h.process.sha256: ./plugins/good is another program: its sha256 is " + right},
		{"./plugins", "./plugins/good", "abc", "9:64: handlers.h.process.sha256: must be 64 hexadecimal digits, as sha256sum prints them"},
	} {
		t.Run(tt.command+" of "+tt.dirs, func(t *testing.T) {
			config := filepath.Join(dir, "config.yaml")
			yaml := fmt.Sprintf(`version: 1
plugins: {dirs: %s}
sources:
  pods: {resource: v1/pods}
sinks:
  out: {discard: {}}
routes: [{name: r, from: pods, handle: h, to: out}]
handlers:
  h: {process: {command: %s, sha256: %s}}
`, tt.dirs, tt.command, tt.sum)
			if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			found := app.Check(t.Context(), config, app.Components{
				Handlers: []plugins.Factory[plugins.Handler]{process.Factory()}, Sinks: []plugins.Factory[plugins.Sink]{discard.Factory()},
			}, app.CheckOptions{})
			got := ""
			for _, p := range found.Problems {
				got += strings.ReplaceAll(strings.TrimPrefix(p.Error(), config+":"), dir, ".")
			}
			want := tt.want
			if strings.Contains(want, ".sha256") { // its column depends on what is before it
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
