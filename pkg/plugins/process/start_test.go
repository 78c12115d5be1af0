package process_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/process"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestStartErrors: a faulty plugin is reported at the start of the router, and no part of it is
// left.
func TestStartErrors(t *testing.T) {
	for _, tt := range []struct {
		role, config string
		want         []string
	}{
		{"sdk", "config: {refuse: true}", []string{"config: this configuration is refused"}},
		{"sdk", "config: {panic: true}", []string{"config: panic: at setup"}},
		{"sdk", "config: {unknown: 1}", []string{`config: json: unknown field "unknown"`}},
		{"sdk", "config: {refuse: 3}", []string{"test.yaml:3:18: config.refuse: must be of type boolean"}},
		{"sdk", "config: 7", []string{"test.yaml:3:9: config: must be of type object"}},
		{"sdk", "config: {hang: true}\nlimits: {startTimeout: 500ms}", []string{"it is not ready after 500ms (limits.startTimeout)"}},
		{"silent", "limits: {startTimeout: 300ms}", []string{"it is not ready after 300ms (limits.startTimeout)"}},
		{"garbage", "", []string{"Unrecognized remote plugin message: hello\uFFFD[31m, I am starting", "see docs/ABI.md"}},
		{"endless", "", []string{"Unrecognized remote plugin message: xxx"}},
		{"flood", "", []string{"Unrecognized remote plugin message: xxx"}},
		{"drowned", "limits: {startTimeout: 300ms}", []string{"it is not ready after 300ms (limits.startTimeout)"}},
		{"core2", "", []string{"incompatible core API version with plugin. Plugin version: 2, Core version: 1"}},
		{"raw, no health", "tls: false", []string{"health: Unimplemented: unknown service grpc.health.v1.Health"}},
		{"raw, ill", "tls: false", []string{"health: the plugin says NOT_SERVING"}},
		{"raw, no description", "tls: false", []string{"calling Describe: Internal: xxx", "…"}},
		{"raw, ends at Configure", "tls: false", []string{"the plugin has ended: exit status 7"}},
		{"raw, refuses at length", "tls: false", []string{"config: no \uFFFDno \uFFFD", "…"}},
		{"ends", "", []string{"it said: cannot find my licence"}},
		{"tcp", "tls: false", []string{"listens on tcp 127.0.0.1:", "it must be a unix socket in the folder that PLUGIN_UNIX_SOCKET_DIR names"}},
		{"outside", "tls: false\nenv: {OUTSIDE: x}", []string{"it must be a unix socket in the folder"}},
		{"version9", "", []string{"incompatible API version with plugin. Plugin version: 9, Client versions: [1]"}},
		{"netrpc", "", []string{`unsupported plugin protocol "netrpc". Supported: [grpc]`}},
		{"plain", "", []string{"the plugin does not speak TLS: set tls: false"}},
		{"deaf", "tls: false\nlimits: {startTimeout: 300ms}", []string{"it is not ready after 300ms"}},
		{"leaves", "tls: false\nlimits: {startTimeout: 1h}", []string{"the plugin has ended"}},
		{"sdk", "env: {TOKEN: {env: NO_SUCH_VARIABLE_HERE}}", []string{"env.TOKEN: environment variable NO_SUCH_VARIABLE_HERE is empty or not set"}},
	} {
		t.Run(tt.role+" "+tt.config, func(t *testing.T) {
			b := newBench(t)
			h, err := b.tryOpen(tt.role, tt.config)
			if err == nil {
				_ = h.Close(t.Context())
				t.Fatal("it opens")
			}
			contains(t, err.Error(), tt.want...)
			if len(err.Error()) > 10_000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			b.nothingLeft()
		})
	}
}

// TestEnvironment: a plugin gets the configured variables and those of the handshake, and none of
// the router's.
func TestEnvironment(t *testing.T) {
	// Guarantee: programs-pinned
	b := newBench(t)
	t.Setenv("ROUTER_SECRET", "do-not-hand-on")
	t.Setenv("HANDED_ON", "yes")
	secret := filepath.Join(t.TempDir(), "token")
	must.Succeed(t, os.WriteFile(secret, []byte("t0ken\n"), 0o600))
	b.open("env: {PLAIN: value, HANDED_ON: {env: HANDED_ON}, TOKEN: {file: " + secret + "}}")
	defer b.close()
	got := b.handle("environ")[0]
	var answer struct{ Environ []string }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(got, "ok ")), &answer); err != nil {
		t.Fatal(got, err)
	}
	listed := regexp.MustCompile(`^(PLAIN|HANDED_ON|TOKEN|TMPDIR|DELTAROUTER_[A-Z_]+|PLUGIN_[A-Z_]+)=`)
	for _, variable := range answer.Environ {
		if !listed.MatchString(variable) {
			t.Errorf("the plugin has %s", variable)
		}
	}
	contains(t, got, `"PLAIN=value"`, `"HANDED_ON=yes"`, `"TOKEN=t0ken"`, `"TMPDIR=`+b.folder+"/deltarouter-plugin-", `"wd":"`+b.folder+"/deltarouter-plugin-",
		"PLUGIN_CLIENT_CERT=", "DELTAROUTER_MAX_MESSAGE=", "DELTAROUTER_MAX_CALLS=4")
	if strings.Contains(b.log.String(), "t0ken") {
		t.Error("the token is in the log")
	}
}

// TestPrivateFolder: other users have no access to the folder of the sockets, with and without TLS.
func TestPrivateFolder(t *testing.T) {
	// Guarantee: programs-pinned
	b := newBench(t)
	b.open("tls: false")
	defer b.close()
	found := folders(t, b.folder)
	if len(found) != 1 {
		t.Fatal(found)
	}
	info, err := os.Stat(found[0])
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestFolderOfAKilledRouter: the next router removes the folders of a killed one, and not those of
// a running one.
func TestFolderOfAKilledRouter(t *testing.T) {
	b := newBench(t)
	b.open("")
	living := folders(t, b.folder)[0]
	old := filepath.Join(b.folder, "deltarouter-plugin-1")
	young := filepath.Join(b.folder, "deltarouter-plugin-2")
	for _, dir := range []string{old, young} {
		must.Succeed(t, os.Mkdir(dir, 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
	}
	for _, dir := range []string{old, living} {
		must.Succeed(t, os.Chtimes(dir, longAgo, longAgo))
	}
	other, err := b.tryOpen("sdk", "") // has its own folder
	must.Succeed(t, err)
	defer other.Close(t.Context())
	for dir, want := range map[string]bool{old: false, young: true, living: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v", dir, err == nil)
		}
	}
	_ = os.RemoveAll(young)
	must.Report(t, other.Close(t.Context()))
	b.close()
}

// TestAnotherProgram: a program with another SHA-256 is not run.
func TestAnotherProgram(t *testing.T) {
	// Guarantee: programs-pinned
	b := newBench(t)
	file := filepath.Join(t.TempDir(), "plugin")
	must.Succeed(t, os.WriteFile(file, []byte("#!/bin/sh\ntouch "+b.folder+"/ran\n"), 0o700))
	node := plugintest.Node(t, "{command: ["+file+"], sha256: "+strings.Repeat("0", 64)+"}")
	if _, err := process.Kind().Open(t.Context(), node, b.env); err == nil {
		t.Fatal("it opens")
	} else {
		contains(t, err.Error(), "command: "+file+" is the program differs from sha256: ")
	}
	if _, err := os.Stat(filepath.Join(b.folder, "ran")); err == nil {
		t.Error("it was run")
	}
	node = plugintest.Node(t, "{command: [/dev/zero], sha256: "+strings.Repeat("0", 64)+"}")
	if _, err := process.Kind().Open(t.Context(), node, b.env); err == nil || err.Error() != "command: /dev/zero is not a file" {
		t.Error(err)
	}
	b.nothingLeft()
}

// TestReplacedProgram: a restart runs the program whose hash was checked, even if the file was
// replaced.
func TestReplacedProgram(t *testing.T) {
	// Guarantee: programs-pinned
	b := newBench(t)
	file := filepath.Join(t.TempDir(), "plugin")
	original, sum := self()
	if err := os.Link(original, file); err != nil {
		text, err := os.ReadFile(original)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(file, text, 0o700))
	}
	h, err := process.Kind().Open(t.Context(), plugintest.Node(t, "{command: ["+file+", sdk], sha256: "+sum+"}"), b.env)
	must.Succeed(t, err)
	b.handler = h
	defer b.close()
	must.Succeed(t, os.Remove(file))
	must.Succeed(t, os.WriteFile(file, []byte("#!/bin/sh\ntouch "+b.folder+"/ran\n"), 0o700))
	b.handle("crash")
	contains(t, b.handle("a")[0], "ok ")
	if _, err := os.Stat(filepath.Join(b.folder, "ran")); err == nil {
		t.Error("what was put in its place was run")
	}
}

// TestStop: a plugin may end orderly, and its last output is logged.
func TestStop(t *testing.T) {
	b := newBench(t)
	b.open("")
	b.close()
	contains(t, b.log.String(), "closing in good order")
	if strings.Contains(b.log.String(), "is killed") {
		t.Error("it was killed")
	}
}

// TestBareGoPlugin: a plugin may serve with go-plugin itself, whose output comes over its stream.
func TestBareGoPlugin(t *testing.T) {
	b := newBench(t)
	h, err := b.tryOpen("bare", "")
	must.Succeed(t, err)
	b.handler = h
	contains(t, b.handle("print.y")[0], "ok ")
	eventually(t, "what was printed is logged", func() bool {
		return strings.Contains(b.log.String(), `from=stdout text="printed to stdout y"`) &&
			strings.Contains(b.log.String(), `from=stderr text="printed to stderr y"`)
	})
	b.close()
}

// TestOutput: lines of any length are read and truncated, and their number per second in the log is
// limited, for any way of printing.
func TestOutput(t *testing.T) {
	b := newBench(t)
	b.open("limits: {log: 50, logLine: 100}")
	b.handle("print.x")
	eventually(t, "what was printed is logged", func() bool {
		return strings.Contains(b.log.String(), "printed to stdout x") && strings.Contains(b.log.String(), "printed to stderr x")
	})
	contains(t, b.handle("flood")[0], "ok ")
	contains(t, b.handle("a")[0], "ok ")
	b.close()
	text := b.log.String()
	contains(t, text, "lines left out")
	if n := strings.Count(text, `msg="handler says" `); n > 50*60 {
		t.Errorf("%d lines", n)
	}
	for line := range strings.Lines(text) {
		if len(line) > 500 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}
