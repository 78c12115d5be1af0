package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestIncludes loads the config.yaml of each archive with the files that it includes. The file
// result of the archive has the problems of the configuration and of each included file, and the
// routes.
func TestIncludes(t *testing.T) {
	t.Setenv("TOKEN", "canary")
	archives, err := filepath.Glob("testdata/include/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			path, err := filepath.Abs(path)
			must.Succeed(t, err)
			archive, err := txtar.ParseFile(path)
			must.Succeed(t, err)
			t.Chdir(extract(t, archive))
			got := describeIncludes(config.Load("config.yaml", config.Policy{}))
			if strings.Contains(got, "canary") {
				t.Error("an included file reads the environment")
			}
			if *update {
				archive.Files = append(archive.Files[:len(archive.Files)-1], txtar.File{Name: "result", Data: []byte(got)})
				must.Succeed(t, os.WriteFile(path, txtar.Format(archive), 0o644))
				return
			}
			if want := string(archive.Files[len(archive.Files)-1].Data); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// extract writes the files of an archive, except for the last one, to a folder.
func extract(t *testing.T, archive *txtar.Archive) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range archive.Files[:len(archive.Files)-1] {
		path := filepath.Join(dir, f.Name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Succeed(t, os.WriteFile(path, f.Data, 0o600))
	}
	return dir
}

func describeIncludes(cfg *config.Config, problems config.Problems) string {
	var b strings.Builder
	if len(problems) > 0 {
		fmt.Fprintln(&b, problems)
	}
	for _, f := range cfg.Fragments {
		fmt.Fprintf(&b, "fragment %s of %s: %d problems\n", f.Name, f.Scope.Prefix, len(f.Problems))
		if len(f.Problems) > 0 {
			fmt.Fprintln(&b, f.Problems)
		}
	}
	for _, r := range cfg.Routes {
		if r.Name == "" {
			continue
		}
		fmt.Fprintf(&b, "route %s id %s from %q upstream %q to %q", r.Name, r.ID, r.From, r.Upstream, targets(r.To))
		if scope := r.Scope(); scope != nil {
			fmt.Fprintf(&b, " sees %q", scope.Namespaces)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// TestIncludedLinks: a link may lead to another place in the folder of the include, as in a mounted
// ConfigMap, but not out of it.
func TestIncludedLinks(t *testing.T) {
	t.Chdir(t.TempDir())
	route := []byte("routes: [{name: a, from: pods, to: out}]")
	must.Succeed(t, os.MkdirAll("teams/..2026", 0o700))
	must.Succeed(t, os.WriteFile("teams/..2026/inside.yaml", route, 0o600))
	must.Succeed(t, os.Symlink("..2026", "teams/..data"))
	must.Succeed(t, os.Symlink("..data/inside.yaml", "teams/inside.yaml"))
	must.Succeed(t, os.WriteFile("outside.yaml", route, 0o600))
	must.Succeed(t, os.Symlink("../outside.yaml", "teams/outside.yaml"))
	must.Succeed(t, os.Symlink("nothing.yaml", "teams/dangling.yaml"))
	cfg, problems := config.Parse("config.yaml", []byte(including), config.Policy{})
	must.Succeed(t, problems.Err())
	for _, f := range cfg.Fragments {
		if inside := f.Name == "teams/inside.yaml"; inside != (len(f.Problems) == 0) || inside != (f.Data != nil) {
			t.Errorf("%s: %v", f.Name, f.Problems)
		}
	}
	if len(cfg.Fragments) != 3 {
		t.Errorf("%d files", len(cfg.Fragments))
	}
}

// TestIncludedQueue: the queue of a route of a team has fewer bytes, unless the file sets them.
func TestIncludedQueue(t *testing.T) {
	t.Chdir(t.TempDir())
	must.Succeed(t, os.Mkdir("teams", 0o700))
	must.Succeed(t, os.WriteFile("teams/a.yaml", []byte(`routes:
  - {name: default, from: pods, to: out, queue: {memory: 5}}
  - {name: less, from: pods, to: out, queue: {bytes: 2Mi}}
`), 0o600))
	cfg, problems := config.Parse("config.yaml", []byte(including+"routes: [{name: own, from: pods, to: out}]\n"), config.Policy{})
	must.Succeed(t, problems.Err())
	for _, r := range cfg.Routes {
		if want := map[string]config.Size{"own": 64 << 20, "team/default": 16 << 20, "team/less": 2 << 20}[r.Name]; r.Queue.Bytes != want {
			t.Errorf("%s has %d bytes, want %d", r.Name, r.Queue.Bytes, want)
		}
	}
	if len(cfg.Routes) != 3 {
		t.Errorf("%d routes", len(cfg.Routes))
	}
}

// including includes all files of the folder teams.
const including = `version: 1
sources: {pods: {resource: v1/pods}}
sinks: {out: {stdout: {}}}
include: [{name: team, files: teams, namespaces: shop, sources: pods, sinks: out}]
`

// TestScopes: a scope sees its namespaces, and objects without one only with AllNamespaces.
func TestScopes(t *testing.T) {
	shop, all := &config.Scope{Namespaces: []string{"shop"}}, &config.Scope{Namespaces: []string{config.AllNamespaces}}
	for _, c := range []struct {
		scope     *config.Scope
		namespace string
		want      bool
	}{
		{nil, "", true},
		{nil, "shop", true},
		{shop, "shop", true},
		{shop, "shop-2", false},
		{shop, "", false},
		{&config.Scope{Namespaces: []string{""}}, "", false},
		{&config.Scope{}, "shop", false},
		{all, "shop", true},
		{all, "", true},
	} {
		if got := c.scope.Sees(c.namespace); got != c.want {
			t.Errorf("%+v sees %q: %t", c.scope, c.namespace, got)
		}
	}
}

// TestIncludeLimits: the limits of an include reject the files beyond them, and no others.
func TestIncludeLimits(t *testing.T) {
	scope := &config.Scope{Prefix: "team", Sources: []string{"pods"}, Sinks: []string{"out"}}
	fragment := func(name, data string) *config.Fragment {
		return &config.Fragment{Name: name, Data: []byte(data), Scope: scope}
	}
	var many strings.Builder
	many.WriteString("routes:\n")
	for i := range 600 {
		fmt.Fprintf(&many, "- {name: r%d, from: pods, to: out}\n", i)
	}
	padding := strings.Repeat("# "+strings.Repeat("x", 1020)+"\n", 1000)
	one := func(i int) string { return fmt.Sprintf("routes: [{name: a%d, from: pods, to: out}]\n", i) }
	var large []*config.Fragment
	for i := range 6 {
		large = append(large, fragment(fmt.Sprintf("large-%d", i), one(i)+padding))
	}
	for _, c := range []struct {
		name      string
		fragments []*config.Fragment
		rejected  string
	}{
		{"routes", []*config.Fragment{fragment("a", many.String()), fragment("b", strings.ReplaceAll(many.String(), "name: r", "name: s")), fragment("c", one(1))}, "b"},
		{"size", large, "large-4 large-5"},
	} {
		cfg, problems := config.Parse("config.yaml", []byte(strings.Split(including, "include:")[0]+"include: []\n"), config.Policy{}, c.fragments...)
		must.Succeed(t, problems.Err())
		var rejected []string
		for _, f := range cfg.Fragments {
			if len(f.Problems) > 0 {
				rejected = append(rejected, f.Name)
			}
		}
		if got := strings.Join(rejected, " "); got != c.rejected {
			t.Errorf("%s: rejected %s, want %s", c.name, got, c.rejected)
		}
	}
}
