package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/scaffold"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestInit: each configuration that router init writes passes router check and router test at once.
func TestInit(t *testing.T) {
	for _, sink := range scaffold.Sinks() {
		t.Run(sink, func(t *testing.T) {
			t.Chdir(t.TempDir())
			checkRun(t, []string{"init", "-with", sink}, cli.CodeOK, "    router test config_test.yaml   # ", "")
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), []string{"check"}, &stdout, &stderr); code != cli.CodeOK || withoutSecrets(stderr.String()) != "" {
				t.Errorf("router check: exit code %d\n%s", code, &stderr)
			}
			checkRun(t, []string{"test"}, cli.CodeOK, "ok   config_test.yaml 2 cases ", "")
			checkRun(t, []string{"init"}, cli.CodeUsage, "", "config.yaml exists already")
		})
	}
}

func TestInitArguments(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"init a.yaml b.yaml", cli.CodeUsage, "", `unexpected argument "b.yaml": name one file`},
		{"init -with slak", cli.CodeUsage, "", `did you mean "slack"?`},
		{"init it's/a.yaml", cli.CodeOK, `router -config 'it'\''s/a.yaml'  `, ""},
		{"init -h", cli.CodeOK, "|slack|", ""},
		{"plugin", cli.CodeUsage, "", "router plugin COMMAND"},
		{"plugin new", cli.CodeUsage, "", "name the folder of the handler"},
		{"plugin new a b", cli.CodeUsage, "", "name the folder of the handler"},
		{"plugin new -lang perl a", cli.CodeUsage, "", "assemblyscript, c, go, javascript or rust"},
		{"plugin new A", cli.CodeUsage, "", "lower-case letters"},
		{"plugin new -lang c a/b", cli.CodeOK, "    cd a/b ", ""},
		{"plugin new -lang c a/b", cli.CodeUsage, "", "exists already"},
	} {
		t.Run(c.args, func(t *testing.T) { checkRun(t, strings.Fields(c.args), c.code, c.stdout, c.stderr) })
	}
}

// TestPluginNew: the handler of each language builds with the command that its README names, and
// passes its test. A language without a toolchain here is skipped.
func TestPluginNew(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	for _, lang := range scaffold.Languages() {
		t.Run(lang, func(t *testing.T) {
			t.Chdir(t.TempDir())
			needToolchain(t, root, lang)
			checkRun(t, []string{"plugin", "new", "-lang", lang, "pod-phase"}, cli.CodeOK, "    cd pod-phase ", "")
			t.Chdir("pod-phase")
			readme := mustRead(t, "README.md")
			_, commands, _ := strings.Cut(readme, "\n\n    ")
			build, _, _ := strings.Cut(commands, "\n")
			if lang == "assemblyscript" {
				linkModules(t, root)
				build = strings.TrimPrefix(build, "npm install && ")
			}
			if lang == "javascript" { // its build is this command
				checkRun(t, []string{"check", "-strict"}, cli.CodeOK, "config.yaml: ok", "")
			} else {
				shell(t, build)
			}
			if lang == "c" { // the configuration is the same for all, and compiling a large module again takes long
				checkRun(t, []string{"check", "-strict"}, cli.CodeOK, "config.yaml: ok", "")
			}
			checkRun(t, []string{"test"}, cli.CodeOK, "ok   config_test.yaml 1 case ", "")
			switch lang {
			case "go":
				shell(t, "go test .")
			case "c", "rust", "assemblyscript": // Go's module takes long to compile again
				must.Succeed(t, os.Remove("pod-phase.wasm"))
				checkRun(t, []string{"plugin", "test"}, cli.CodeOK, "built pod-phase.wasm: ", "")
			case "javascript":
				checkRun(t, []string{"plugin", "build"}, cli.CodeUsage, "", "JavaScript is not built: router check reports its mistakes")
				checkRun(t, []string{"plugin", "test"}, cli.CodeOK, "ok   config_test.yaml 1 case ", "")
			}
		})
	}
}

// needToolchain skips the test if the compiler of a language is not here, as hack/guests.sh does.
func needToolchain(t *testing.T, root, lang string) {
	t.Helper()
	switch lang {
	case "c":
		must.Succeed(t, os.WriteFile("probe.c", []byte("int f(void) { return 1; }"), 0o600))
		if out, err := exec.Command("clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry", "-o", "probe.wasm", "probe.c").CombinedOutput(); err != nil {
			t.Skipf("no clang that makes WebAssembly (Debian: clang lld): %v %s", err, out)
		}
	case "rust":
		for _, rustc := range []string{"rustc", "/usr/bin/rustc"} {
			sysroot, err := exec.Command(rustc, "--print", "sysroot").Output()
			if err != nil {
				continue
			}
			if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(sysroot)), "lib/rustlib/wasm32-unknown-unknown/lib")); err == nil {
				t.Setenv("RUSTC", rustc)
				return
			}
		}
		t.Skip("no rustc with the target wasm32-unknown-unknown (Debian: rustc libstd-rust-dev-wasm32)")
	case "javascript":
		if _, err := os.Stat(filepath.Join(root, "pkg/plugins/js/engine/quickjs.wasm")); err != nil {
			t.Skip("no JavaScript engine (sh hack/jsengine.sh)")
		}
	case "assemblyscript":
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("no npm")
		}
		if _, err := os.Stat(filepath.Join(root, "sdk/assemblyscript/node_modules/assemblyscript/bin/asc.js")); err != nil {
			t.Skip("no assemblyscript (npm ci --prefix sdk/assemblyscript)")
		}
	}
}

// linkModules does what npm install does, without the network.
func linkModules(t *testing.T, root string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll("node_modules/.bin", 0o700))
	for link, target := range map[string]string{
		"node_modules/assemblyscript": filepath.Join(root, "sdk/assemblyscript/node_modules/assemblyscript"),
		"node_modules/deltarouter":    "../sdk",
		"node_modules/.bin/asc":       "../assemblyscript/bin/asc.js",
	} {
		must.Succeed(t, os.Symlink(target, link))
	}
}

// TestJavaScriptExample runs the cases of the example in JavaScript.
func TestJavaScriptExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	needToolchain(t, root, "javascript")
	t.Chdir(filepath.Join(root, "examples/plugins/image-tags"))
	checkRun(t, []string{"check", "-strict"}, cli.CodeOK, "config.yaml: ok", "")
	checkRun(t, []string{"test"}, cli.CodeOK, "ok   config_test.yaml 3 cases ", "")
}

func shell(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}
