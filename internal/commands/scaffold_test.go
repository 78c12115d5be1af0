package commands

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
			t.Parallel()
			// With the flags of other tests' builds, go finds their packages in its cache.
			f := &place{dir: t.TempDir(), env: []string{"CGO_ENABLED=0", "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath")}}
			f.needToolchain(t, root, lang)
			f.router(t, "plugin new -lang "+lang+" pod-phase", cli.CodeOK, "    cd pod-phase ", "")
			f.dir = filepath.Join(f.dir, "pod-phase")
			readme := mustRead(t, filepath.Join(f.dir, "README.md"))
			_, commands, _ := strings.Cut(readme, "\n\n    ")
			build, _, _ := strings.Cut(commands, "\n")
			if lang == "assemblyscript" {
				linkModules(t, root, filepath.Join(f.dir, "node_modules"))
				build = strings.TrimPrefix(build, "npm install && ")
			}
			if lang == "javascript" { // its build is this command
				f.router(t, "check -strict", cli.CodeOK, "config.yaml: ok", "")
			} else {
				f.shell(t, build)
			}
			if lang == "c" { // the configuration is the same for all, and compiling a large module again takes long
				f.router(t, "check -strict", cli.CodeOK, "config.yaml: ok", "")
			}
			f.router(t, "test", cli.CodeOK, "ok   config_test.yaml 1 case ", "")
			switch lang {
			case "go":
				f.shell(t, "go test .")
			case "c", "rust", "assemblyscript": // Go's module takes long to compile again
				must.Succeed(t, os.Remove(filepath.Join(f.dir, "pod-phase.wasm")))
				f.router(t, "plugin test", cli.CodeOK, "built pod-phase.wasm: ", "")
			case "javascript":
				f.router(t, "plugin build", cli.CodeUsage, "", "JavaScript is not built: router check reports its mistakes")
				f.router(t, "plugin test", cli.CodeOK, "ok   config_test.yaml 1 case ", "")
			}
		})
	}
}

// place is where a test runs commands as processes of their own, beside others.
type place struct {
	dir string
	env []string // beside the test's
}

func (f *place) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), f.env...)
	return cmd
}

func (f *place) shell(t *testing.T, command string) {
	t.Helper()
	if out, err := f.command(t, "sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// router is checkRun in the folder.
func (f *place) router(t *testing.T, args string, code int, inStdout, inStderr string) {
	t.Helper()
	program, err := filepath.Abs(os.Args[0])
	must.Succeed(t, err)
	cmd := f.command(t, program, strings.Fields(args)...)
	cmd.Env = append(cmd.Env, asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(out.String(), inStdout) || !strings.Contains(errs.String(), inStderr) {
		t.Errorf("router %s: exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, code, &out, &errs)
	}
}

// needToolchain skips the test if the compiler of a language is not here, as tools/guests.sh does.
func (f *place) needToolchain(t *testing.T, root, lang string) {
	t.Helper()
	switch lang {
	case "c":
		must.Succeed(t, os.WriteFile(filepath.Join(f.dir, "probe.c"), []byte("int f(void) { return 1; }"), 0o600))
		if out, err := f.command(t, "clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry", "-o", "probe.wasm", "probe.c").CombinedOutput(); err != nil {
			t.Skipf("no clang that makes WebAssembly (Debian: clang lld): %v %s", err, out)
		}
	case "rust":
		for _, rustc := range []string{"rustc", "/usr/bin/rustc"} {
			sysroot, err := exec.Command(rustc, "--print", "sysroot").Output()
			if err != nil {
				continue
			}
			if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(sysroot)), "lib/rustlib/wasm32-unknown-unknown/lib")); err == nil {
				f.env = append(f.env, "RUSTC="+rustc)
				return
			}
		}
		t.Skip("no rustc with the target wasm32-unknown-unknown (Debian: rustc libstd-rust-dev-wasm32)")
	case "javascript":
		needEngine(t, root)
	case "assemblyscript":
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("no npm")
		}
		if _, err := os.Stat(filepath.Join(root, "sdk/assemblyscript/node_modules/assemblyscript/bin/asc.js")); err != nil {
			t.Skip("no assemblyscript (npm ci --prefix sdk/assemblyscript)")
		}
	}
}

func needEngine(t *testing.T, root string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "pkg/plugins/js/engine/quickjs.wasm")); err != nil {
		t.Skip("no JavaScript engine (sh tools/jsengine.sh)")
	}
}

// linkModules does what npm install does, without the network.
func linkModules(t *testing.T, root, folder string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Join(folder, ".bin"), 0o700))
	for link, target := range map[string]string{
		"assemblyscript": filepath.Join(root, "sdk/assemblyscript/node_modules/assemblyscript"),
		"deltarouter":    "../sdk",
		".bin/asc":       "../assemblyscript/bin/asc.js",
	} {
		must.Succeed(t, os.Symlink(target, filepath.Join(folder, link)))
	}
}

// TestJavaScriptExample runs the cases of the example in JavaScript.
func TestJavaScriptExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	needEngine(t, root)
	t.Chdir(filepath.Join(root, "examples/plugins/image-tags"))
	checkRun(t, []string{"check", "-strict"}, cli.CodeOK, "config.yaml: ok", "")
	checkRun(t, []string{"test"}, cli.CodeOK, "ok   config_test.yaml 3 cases ", "")
}
