package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// files creates files, and links for texts that begin with "-> ".
func files(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		to, link := strings.CutPrefix(text, "-> ")
		var err error
		if link {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		must.Succeed(t, err)
	}
}

// TestPolicy: a configuration can name only files that the command line allows, through links too.
func TestPolicy(t *testing.T) {
	// Guarantee: no-programs, folders
	dir := t.TempDir()
	files(t, dir, map[string]string{
		"secrets/token": "t", "secrets/..data": "-> token", "secrets/mounted": "-> ..data", "secrets/out": "-> ../other/token", "secrets/lost": "-> ../other/none",
		"other/token": "t", "other/in": "-> ../secrets/token", "secrets-too/token": "t", "files/sub/kubeconfig": "", "programs/run": "", "files/programs": "-> ../programs",
	})
	at := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	const none = "is in none of the folders that the router was started with"
	secret := config.Policy{SecretDirs: at("empty", "secrets")}
	file := config.Policy{FileDirs: at("files"), PluginDirs: at("programs")}
	for _, tt := range []struct {
		name   string
		policy config.Policy
		yaml   string
		want   string // part of the only problem; empty: no problem
	}{
		{"no policy", config.Policy{}, "token: {file: other/token}", ""},
		{"a secret inside", secret, "token: {file: secrets/token}", ""},
		{"a mounted secret", secret, "token: {file: secrets/mounted}", ""},
		{"a secret that is not there yet", secret, "token: {file: secrets/new/token}", ""},
		{"a secret outside", secret, "token: {file: other/token}", "config.yaml:2:17: sinks.out.kind.token.file: DIR/other/token " + none + " (-secret-dir DIR/empty -secret-dir DIR/secrets)"},
		{"an absolute path", secret, "token: {file: /etc/passwd}", "/etc/passwd " + none},
		{"dots", secret, "token: {file: secrets/../other/token}", none},
		{"absolute dots", secret, "token: {file: " + dir + "/secrets/../other/token}", none},
		{"a name that begins alike", secret, "token: {file: secrets-too/token}", none},
		{"a link out", secret, "token: {file: secrets/out}", none},
		{"a link to nothing outside", secret, "token: {file: secrets/lost}", none},
		{"a link in, which may change", secret, "token: {file: other/in}", none},
		{"a variable is no file", secret, "token: {env: HOME}", ""},
		{"other files have other folders", secret, "read: other/token", ""},
		{"a file inside", file, "read: files/sub/kubeconfig", ""},
		{"a file outside", file, "read: other/token", "(-file-dir DIR/files)"},
		{"a URL that is a path", file, "read: a://../../etc/passwd", none},
		{"a secret has other folders", file, "token: {file: other/token}", ""},
		{"what is written", file, "written: files/new/out", ""},
		{"what is written outside", file, "written: out", none},
		{"a program is read", config.Policy{PluginDirs: at("programs")}, "read: programs/run", ""},
		{"a program is written", config.Policy{PluginDirs: at("programs")}, "written: programs/run", "DIR/programs/run is in a folder of programs (-plugin-dir), where the router writes nothing"},
		{"a program is written through a link", config.Policy{PluginDirs: at("programs")}, "written: files/programs/run", "is in a folder of programs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, "config.yaml")
			got := strings.ReplaceAll(decodeUnder(t, path, tt.yaml, tt.policy).Error(), dir, "DIR")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Count(got, "\n") > 0 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// decodeUnder decodes the configuration of a sink, which begins in the second line.
func decodeUnder(t *testing.T, path, text string, policy config.Policy) config.Problems {
	t.Helper()
	text = "sinks: {out: {kind: \n {" + text + "}}}\nversion: 1\nsources: {pods: {resource: v1/pods}}\nroutes: [{name: r, from: pods, to: out}]\n"
	cfg, problems := config.Parse(path, []byte(text), policy)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var named struct {
		Token   config.Secret `yaml:"token"`
		Read    string        `yaml:"read,path"`
		Written string        `yaml:"written,written"`
	}
	return cfg.Sinks["out"].Config.Decode(&named)
}

// TestPolicyOfConfig: the policy applies to the files of the configuration itself, which cannot set
// the folders of programs.
func TestPolicyOfConfig(t *testing.T) {
	// Guarantee: folders
	dir := t.TempDir()
	files(t, dir, map[string]string{"files/a": ""})
	path := filepath.Join(dir, "files", "config.yaml")
	_, problems := config.Parse(path, []byte(`version: 1
cluster: {kubeconfig: ../kubeconfig}
state: {dir: ../state}
schemas: /schemas
listen: {api: "unix:/run/api.sock"}
plugins: {dirs: [/bin]}
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, to: out}]
`), config.Policy{FileDirs: []string{filepath.Join(dir, "files")}})
	var at []string
	for _, p := range problems {
		at = append(at, p.Path+": "+strings.ReplaceAll(strings.Split(p.Message, " is in none")[0], dir, "DIR"))
	}
	want := []string{
		"cluster.kubeconfig: DIR/kubeconfig", "state.dir: DIR/state", "schemas: /schemas", "listen.api: /run/api.sock",
		"plugins: is no key any more: start the router with -plugin-dir FOLDER for each folder of programs, and remove it",
	}
	if !slices.Equal(at, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(at, "\n"), strings.Join(want, "\n"))
	}
}
