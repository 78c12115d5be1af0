package router_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

// reloading is a router whose configuration changes. It has no API server.
type reloading struct {
	t       *testing.T
	file    string
	journal *journal
	log     *logged.Buffer
	signal  chan os.Signal
	probes  string
}

const reloadable = `version: 1
cluster: {name: %s, kubeconfig: %q}
listen: {probes: "127.0.0.1:0"}
`

func startReloading(t *testing.T, config string) *reloading {
	t.Helper()
	return startReloadingWith(t, config, &journal{})
}

func startReloadingWith(t *testing.T, config string, j *journal) *reloading {
	t.Helper()
	return startReloadingFile(t, write(t, config), j)
}

func startReloadingFile(t *testing.T, file string, j *journal, clocks ...timer.Clock) *reloading {
	t.Helper()
	r := &reloading{t: t, file: file, journal: j, log: &logged.Buffer{}, signal: make(chan os.Signal)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	opts := router.Options{
		Config: r.file, Components: components(r.journal), Log: slog.New(slog.NewTextHandler(r.log, nil)), Stdout: io.Discard,
		DrainTimeout: time.Second, Reload: r.signal,
	}
	for _, clock := range clocks {
		opts.Dependencies.Clock = clock
	}
	go func() { ended <- router.Run(ctx, opts) }()
	t.Cleanup(func() {
		cancel()
		must.Report(t, <-ended)
	})
	r.logs("msg=started")
	r.probes = "http://" + regexp.MustCompile(`for=probes address=(\S+)`).FindStringSubmatch(r.log.String())[1]
	return r
}

// logs waits until a text is in the log.
func (r *reloading) logs(text string) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !strings.Contains(r.log.String(), text); {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("the log lacks %q:\n%s", text, r.log)
		}
	}
}

// change writes the file, requests a reload unless the router has to notice the change itself, and
// returns the opened and closed components.
func (r *reloading) change(config string, tell bool, want string) []string {
	r.t.Helper()
	r.journal.mu.Lock()
	r.journal.lines = nil
	r.journal.mu.Unlock()
	r.log.Reset()
	must.Succeed(r.t, os.WriteFile(r.file, []byte(config), 0o600))
	if tell {
		r.signal <- syscall.SIGHUP
	}
	r.logs(want)
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	return slices.Clone(r.journal.lines)
}

func TestReload(t *testing.T) {
	// Guarantee: reload-all-or-nothing, reload-keeps
	head := fmt.Sprintf(reloadable, "test", kubeconfig(t))
	const rest = `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}, two: {fake: {}}}
handlers: {h: {fake: {}}}
routes:
  - {name: a, from: pods, handler: h, to: [one, two]}
  - {name: b, from: pods, filter: list("pods").size() > 0, to: one}
`
	r := startReloading(t, head+rest)
	const refused, done = "the configuration was not reloaded", "msg=reloaded"
	for _, c := range []struct {
		name, config string
		tell         bool
		log          string
		want         []string // opened and closed
		reason       string   // in the log, if it was refused
	}{
		{"nothing", head + rest, true, done, nil, ""},
		{
			"a bad one", head + strings.Replace(rest, "to: one", "to: three", 1), false, refused, nil,
			`there is no sink \"three\"`,
		},
		{
			"one that cannot be opened", head + strings.NewReplacer("h: {", "broken: {", "handler: h", "handler: broken", "two", "too").Replace(rest),
			true, refused,
			[]string{"open too", "close too"},
			"handlers.broken: it is broken",
		},
		{
			"another cluster", fmt.Sprintf(reloadable, "other", kubeconfig(t)) + rest, true, refused, nil,
			"cluster: cannot change while the router runs: restart it",
		},
		{
			"another sink, and more workers", head + strings.NewReplacer("two", "too", "name: b,", "name: b, handler: h,").Replace(rest),
			false, done,
			[]string{"open too", "open h for 8", "close h", "close two"},
			"",
		},
		{
			"fewer workers, another source", head + strings.NewReplacer("two", "too", "pods: {resource: v1/pods}", "pods: {resource: v1/nodes}").Replace(rest),
			true, done, nil, "",
		},
	} {
		got := r.change(c.config, c.tell, c.log)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		code, body := get(t, r.probes+"/readyz")
		if code != http.StatusServiceUnavailable || strings.Contains(body, "[-]config: not ok\n") != (c.log == refused) || strings.Contains(body, "waiting for config") {
			t.Errorf("%s: /readyz says %d\n%s", c.name, code, body)
		}
		if log := r.log.String(); !strings.Contains(log, c.reason) {
			t.Errorf("%s: the log does not say why: %s", c.name, log)
		}
		ok := "deltarouter_config_last_reload_successful 1"
		if c.log == refused {
			ok = "deltarouter_config_last_reload_successful 0"
		}
		if _, body := get(t, r.probes+"/metrics"); !strings.Contains(body, ok) || strings.Count(body, "deltarouter_config_hash{") != 1 {
			t.Errorf("%s: /metrics lacks %s, or has several hashes", c.name, ok)
		}
	}
}

// TestReloadOfAMount: the path of the file has symlinks, one of which is replaced, as in a mounted
// ConfigMap.
func TestReloadOfAMount(t *testing.T) {
	config := fmt.Sprintf(reloadable, "test", kubeconfig(t)) + `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
routes: [{name: a, from: pods, to: one}]
`
	r := startReloading(t, config)
	mount, other := filepath.Dir(r.file), filepath.Dir(write(t, strings.ReplaceAll(config, "one", "two")))
	must.Succeed(t, os.Rename(r.file, filepath.Join(filepath.Dir(other), "first.yaml")))
	must.Succeed(t, os.Symlink(filepath.Join(other, "config.yaml"), filepath.Join(mount, "new")))
	must.Succeed(t, os.Rename(filepath.Join(mount, "new"), r.file))
	r.logs("msg=reloaded")
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	if want := []string{"open one", "open two", "close one"}; !slices.Equal(r.journal.lines, want) {
		t.Errorf("got %q, want %q", r.journal.lines, want)
	}
}

// TestReloadOfAFolder: a file that is added to the folder of the configuration is part of it.
func TestReloadOfAFolder(t *testing.T) {
	dir := filepath.Dir(write(t, fmt.Sprintf(reloadable, "test", kubeconfig(t))+`sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
routes: [{name: a, from: pods, to: one}]
`))
	r := startReloadingFile(t, dir, &journal{})
	more := "sinks: {two: {fake: {}}}\nroutes: [{name: b, from: pods, to: two}]\n"
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "more.yaml"), []byte(more), 0o600))
	r.logs("msg=reloaded")
	r.journal.mu.Lock()
	defer r.journal.mu.Unlock()
	if want := []string{"open one", "open two"}; !slices.Equal(r.journal.lines, want) {
		t.Errorf("got %q, want %q", r.journal.lines, want)
	}
}

// TestReloadOfAChangeWhileOpening: the file changes while the router is being opened.
func TestReloadOfAChangeWhileOpening(t *testing.T) {
	config := fmt.Sprintf(reloadable, "test", kubeconfig(t)) + `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
routes: [{name: a, from: pods, to: one}]
`
	j := &journal{}
	var file string
	j.opening = func() {
		must.Report(t, os.WriteFile(file, []byte(strings.ReplaceAll(config, "one", "two")), 0o600))
	}
	file = write(t, config)
	r := startReloadingFile(t, file, j)
	r.logs("msg=reloaded")
	j.mu.Lock()
	defer j.mu.Unlock()
	if want := []string{"open one", "open two", "close one"}; !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
}

// TestReloadReadsFilesAnew: a changed module makes another handler, but only at a reload.
func TestReloadReadsFilesAnew(t *testing.T) {
	config := fmt.Sprintf(reloadable, "test", kubeconfig(t)) + `sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
handlers: {h: {fake: {}}}
routes: [{name: a, from: pods, handler: h, to: one}]
`
	module := write(t, "first")
	r := startReloadingWith(t, config, &journal{file: module})
	if got := r.change(config, true, "msg=reloaded"); got != nil {
		t.Errorf("got %q with the same module", got)
	}
	must.Succeed(t, os.WriteFile(module, []byte("second"), 0o600))
	if got, want := r.change(config, true, "msg=reloaded"), []string{"open h for 4", "close h"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReloadByAPI: the caller receives the result of the reload.
func TestReloadByAPI(t *testing.T) {
	config := strings.Replace(fmt.Sprintf(reloadable, "test", kubeconfig(t)), `probes: "127.0.0.1:0"`, `probes: "127.0.0.1:0", api: "127.0.0.1:0"`, 1) +
		"sources: {pods: {resource: v1/pods}}\nsinks: {one: {fake: {}}}\nroutes: [{name: a, from: pods, to: one}]\n"
	r := startReloading(t, config)
	address := "http://" + regexp.MustCompile(`for=api address=(\S+)`).FindStringSubmatch(r.log.String())[1]
	ask := func() (int, string) {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Post(address+"/api/v1/reload", "application/json", nil)
		must.Succeed(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		return response.StatusCode, string(body)
	}
	if code, body := ask(); code != http.StatusOK || !strings.Contains(body, "true") {
		t.Errorf("got %d %s", code, body)
	}
	must.Succeed(t, os.WriteFile(r.file, []byte(config+"colour: red\n"), 0o600))
	if code, body := ask(); code != http.StatusUnprocessableEntity || !strings.Contains(body, "config.yaml:7:1: colour: unknown key") {
		t.Errorf("got %d %s", code, body)
	}
}
