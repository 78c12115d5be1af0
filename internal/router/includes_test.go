package router_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/test/must"
)

// TestIncludedMistakes: a mistake in an included file disables only its own routes. At a reload its
// former routes continue. A strict include rejects everything. The router notices changes of
// included files, and new ones.
func TestIncludedMistakes(t *testing.T) {
	// Guarantee: include-mistakes
	config := fmt.Sprintf(reloadable, "test", kubeconfig(t)) + `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
handlers: {h: {fake: {}}}
include:
  - {name: team, files: teams/*.yaml, namespaces: [shop], sources: pods, sinks: one, handlers: h}
routes: [{name: a, from: pods, handler: h, to: one}]
`
	file := write(t, config)
	dir := filepath.Join(filepath.Dir(file), "teams")
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	const good, better, broken, mistaken = "routes: [{name: %s, from: pods, handler: h, to: one}]", "routes: [{name: %s, from: pods, to: one}, {name: more, from: pods, to: one}]",
		"routes: [{name: %s", "routes: [{name: %s, from: pods, filter: object.spec.nonsense == 1, to: one}]"
	put := func(name, text string) func() {
		return func() {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(strings.ReplaceAll(text, "%s", name)), 0o600))
		}
	}
	put("x", good)()
	put("y", mistaken)()
	r := startReloadingFile(t, file, &journal{})
	routes := func() (names []string) {
		_, body := get(t, r.probes+"/metrics")
		for _, m := range regexp.MustCompile(`deltarouter_route_paused\{route="([^"]*)"\}`).FindAllStringSubmatch(body, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	difference := func(rejected, wanted, problem string) string {
		_, metrics := get(t, r.probes+"/metrics")
		_, ready := get(t, r.probes+"/readyz")
		switch got := strings.Join(routes(), " "); {
		case got != wanted:
			return fmt.Sprintf("the routes are %s, want %s", got, wanted)
		case !strings.Contains(metrics, `deltarouter_include_rejected_files{include="team"} `+rejected+"\n"):
			return fmt.Sprintf("not %s files are rejected: %s", rejected, regexp.MustCompile(`.*include_rejected.*`).FindAllString(metrics, -1))
		case strings.Contains(ready, "[-]includes/team: not ok") != (problem != ""):
			return "/readyz says\n" + ready
		case !strings.Contains(r.log.String(), problem):
			return "the log lacks " + problem
		}
		return ""
	}
	// check waits, because a slow machine may reload once more for the same change.
	check := func(step, rejected, wanted, problem string) {
		t.Helper()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		deadline := time.After(time.Minute)
		for {
			wrong := difference(rejected, wanted, problem)
			if wrong == "" {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %s\nthe log says\n%s", step, wrong, r.log)
			}
		}
	}
	check("start", "1", "a team/x", "y.yaml:1:52: routes[0].filter: core.v1.PodSpec has no field")
	if want := []string{"open one", "open h for 4", "open team/h for 4"}; !slices.Equal(r.journal.lines, want) {
		t.Errorf("the instances of the handler are %q, want %q", r.journal.lines, want)
	}
	for _, c := range []struct {
		name             string
		change           func()
		tell             bool
		log              string
		rejected, routes string
		problem          string
	}{
		{"repaired", put("y", good), false, "msg=reloaded", "0", "a team/x team/y", ""},
		{"added", put("z", better), false, "msg=reloaded", "0", "a team/more team/x team/y team/z", ""},
		{"mistaken", put("z", mistaken), true, "msg=reloaded", "1", "a team/more team/x team/y team/z", "former=true"},
		{"broken", put("x", broken), true, "msg=reloaded", "2", "a team/more team/x team/y team/z", "x.yaml:1: is not YAML"},
		{"empty", put("z", ""), true, "msg=reloaded", "2", "a team/more team/x team/y team/z", "z.yaml: is empty"},
		{"not granted any more", func() {
			must.Succeed(t, os.WriteFile(file, []byte(strings.Replace(config, "handlers: h}", "}", 1)), 0o600))
		}, true, "msg=reloaded", "3", "a team/more team/z", "grants no handlers"},
		{"granted again", func() { must.Succeed(t, os.WriteFile(file, []byte(config), 0o600)) }, true, "msg=reloaded", "2", "a team/more team/x team/y team/z", "former=true"},
		{"strict", func() {
			must.Succeed(t, os.WriteFile(file, []byte(strings.Replace(config, "handlers: h}", "handlers: h, strict: true}", 1)), 0o600))
		}, true, "was not reloaded", "2", "a team/more team/x team/y team/z", "x.yaml:1: is not YAML"},
		{"removed", func() {
			must.Succeed(t, os.Remove(filepath.Join(dir, "x.yaml")))
			must.Succeed(t, os.Remove(filepath.Join(dir, "z.yaml")))
		}, true, "msg=reloaded", "0", "a team/y", ""},
	} {
		r.log.Reset()
		c.change()
		if c.tell {
			r.signal <- syscall.SIGHUP
		}
		r.logs(c.log)
		check(c.name, c.rejected, c.routes, c.problem)
	}
}
