package cases_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/internal/cases"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/emit"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/stdout"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expectations in testdata")

func TestMain(m *testing.M) { leaks.Main(m) }

// counter is a handler that counts its deltas in its own state. It fails for an object with the
// label `fail`, and succeeds after that number of tries.
type counter struct {
	env   plugins.HandlerEnv
	had   int
	tries map[string]int
}

func (c *counter) Handle(ctx context.Context, batch []*event.Delta) ([]plugins.Result, error) {
	results := make([]plugins.Result, len(batch))
	for i, d := range batch {
		labels := d.Object().Labels()
		switch {
		case labels["ask"] != "":
			results[i] = c.ask(ctx, d)
		case labels["hang"] != "":
			<-ctx.Done()
			return nil, ctx.Err()
		case labels["fail"] == "always":
			results[i] = plugins.Result{Verdict: plugins.Fail, Err: errors.New("it is labelled so")}
		case labels["fail"] == "once" && c.tries[d.Key().Name] == 0:
			c.tries[d.Key().Name]++
			results[i] = plugins.Result{Verdict: plugins.Retry, Err: errors.New("not yet")}
		case labels["now"] != "":
			now := c.env.Clock.Now()
			_, remembers := c.env.KV.Get("now")
			data := fmt.Sprintf(`{"now":%q,"seen":%q,"remembers":%v}`, now.UTC().Format(time.RFC3339), d.Seen.UTC().Format(time.RFC3339), remembers)
			results[i] = plugins.Result{Events: []plugins.Emit{{Data: []byte(data)}}}
			if !remembers {
				if err := c.env.KV.Commit([]plugins.KVWrite{{Key: "now", Value: []byte("1"), Expires: now.Add(time.Hour)}}, 1<<20); err != nil {
					return nil, err
				}
			}
		default:
			c.had++
			data := fmt.Sprintf(`{"had":%d,"others":%d}`, c.had, c.env.Lookup.Count("nodes", "name", "n1"))
			results[i] = plugins.Result{Events: []plugins.Emit{{Data: []byte(data)}}}
		}
	}
	return results, nil
}

// ask sends the request in an object's annotations, as a guest with a grant does.
func (c *counter) ask(ctx context.Context, d *event.Delta) plugins.Result {
	request, err := http.NewRequestWithContext(ctx, d.Object().Labels()["ask"], d.Object().GetObjectMeta().GetAnnotations()["url"], nil)
	if err != nil {
		return plugins.Result{Verdict: plugins.Fail, Err: err}
	}
	response, err := c.env.HTTP.RoundTrip(request)
	if err != nil {
		return plugins.Result{Verdict: plugins.Retry, Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	data := fmt.Sprintf(`{"status":%d,"type":%q,"body":%q}`, response.StatusCode, response.Header.Get("Content-Type"), body)
	return plugins.Result{Events: []plugins.Emit{{Data: []byte(data)}}, Err: err}
}

func (c *counter) Close(context.Context) error { return nil }

// counterKind is a kind of handler that looks up nodes.
type counterKind struct{ fakekind.Handler }

func (counterKind) Lookups(n config.Node) []plugins.LookupGrant {
	return []plugins.LookupGrant{{Source: "nodes", Node: n}}
}

func counters(open func(context.Context, config.Node, plugins.HandlerEnv) (plugins.Handler, error)) plugins.HandlerKind {
	return counterKind{fakekind.Handler{Definition: fakekind.Define("counter"), OpenFunc: open}}
}

func components() compile.Components {
	return compile.Components{
		Handlers: []plugins.HandlerKind{counters(func(_ context.Context, _ config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
			return &counter{env: env, tries: make(map[string]int)}, nil
		})},
		Sinks: []plugins.SinkKind{stdout.Kind(), webhook.Kind()},
		Emit:  emit.New,
	}
}

var took = regexp.MustCompile(`\d+\.\d+s`)

// run runs cases as the command line does. It returns the output without times, and the summary.
func run(t *testing.T, args []string) string {
	t.Helper()
	var out bytes.Buffer
	opts := cases.Options{Components: components(), Out: &out, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.BoolVar(&opts.Update, "update", false, "")
	flags.BoolVar(&opts.Verbose, "v", false, "")
	flags.DurationVar(&opts.Timeout, "timeout", time.Minute, "")
	flags.Func("run", "", func(text string) (err error) { opts.Run, err = regexp.Compile(text); return err })
	must.Succeed(t, flags.Parse(args))
	opts.Files = flags.Args()
	sum, err := cases.Run(t.Context(), opts)
	fmt.Fprintf(&out, "failed %d, invalid %d", sum.Failed, len(sum.Invalid))
	if err != nil {
		fmt.Fprintf(&out, ", error: %v", err)
	}
	return took.ReplaceAllString(out.String(), "0.0s") + "\n"
}

// TestGolden runs archives: the comment of an archive is the command line, the file "out" the
// expected output, and "updated" the expected config_test.yaml if the run changes it.
func TestGolden(t *testing.T) {
	// Guarantee: chain-delivery (chain.txtar), limit-of-conditions (limit-count.txtar)
	// Guarantee: limit-of-conditions (limit-left.txtar)
	// Guarantee: reevaluate (when.txtar), delete-holds (combined.txtar)
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			name, err := filepath.Abs(name)
			must.Succeed(t, err)
			archive, err := txtar.ParseFile(name)
			must.Succeed(t, err)
			golden(t, name, archive)
		})
	}
}

func golden(t *testing.T, name string, archive *txtar.Archive) {
	t.Helper()
	t.Chdir(t.TempDir())
	var given, wanted, got []txtar.File
	before := ""
	for _, f := range archive.Files {
		if f.Name == "out" || f.Name == "updated" {
			wanted = append(wanted, f)
			continue
		}
		given = append(given, f)
		if f.Name == "config_test.yaml" {
			before = string(f.Data)
		}
		must.Succeed(t, os.MkdirAll(filepath.Dir(f.Name), 0o700))
		must.Succeed(t, os.WriteFile(f.Name, f.Data, 0o600))
	}
	got = append(got, txtar.File{Name: "out", Data: []byte(run(t, strings.Fields(string(archive.Comment))))})
	if after, err := os.ReadFile("config_test.yaml"); err == nil && string(after) != before {
		got = append(got, txtar.File{Name: "updated", Data: after})
		if again := run(t, nil); !strings.HasPrefix(again, "ok ") {
			t.Errorf("what was updated does not pass:\n%s", again)
		}
	}
	if *rewrite {
		archive.Files = slices.Concat(given, got)
		must.Succeed(t, os.WriteFile(name, txtar.Format(archive), 0o600))
		return
	}
	if want, got := txtar.Format(&txtar.Archive{Files: wanted}), txtar.Format(&txtar.Archive{Files: got}); !bytes.Equal(want, got) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCompiledOnce shows that all cases of a run share a folder for compiled handlers: the given
// one, or a temporary one, which is removed afterwards.
func TestCompiledOnce(t *testing.T) {
	for given, left := range map[string]bool{"": false, t.TempDir(): true} {
		folder := sharedFolder(t, given)
		if _, err := os.Stat(folder); left != (err == nil) || left != (folder == given) {
			t.Errorf("%s for %q: %v", folder, given, err)
		}
	}
}

// sharedFolder runs cases, and returns the folder for compiled handlers.
func sharedFolder(t *testing.T, given string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"a.yaml": `version: 1
state: {dir: ./state}
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
handlers: {h: {counter: {}}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, handler: h, to: out}]
`, "a_test.yaml": "cases: [{name: a, expect: none}, {name: b, expect: none}]", "b_test.yaml": "config: a.yaml\ncases: [{name: a, expect: none}]",
	} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var folders []string
	with := components()
	open := with.Handlers[0].Open
	with.Handlers[0] = counters(func(ctx context.Context, n config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
		info, err := os.Stat(env.Cache)
		if err != nil || env.Cache != given && info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		folders = append(folders, env.Cache)
		return open(ctx, n, env)
	})
	sum, err := cases.Run(t.Context(), cases.Options{
		Components: with, Out: io.Discard, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute, Cache: given,
	})
	if err != nil || sum.Failed > 0 || len(sum.Invalid) > 0 {
		t.Fatal(sum, err)
	}
	if len(folders) != 3 || len(slices.Compact(folders)) != 1 {
		t.Errorf("folders: %v", folders)
	}
	if _, err := os.Stat("state"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state folder was made: %v", err)
	}
	return folders[0]
}

// TestTimeoutBeginsWithTheCase shows that the timeout of a case excludes the time for opening a
// handler, which may include the compilation of a guest.
func TestTimeoutBeginsWithTheCase(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"a.yaml": `version: 1
sources: {pods: {resource: v1/pods}, nodes: {resource: v1/nodes}}
handlers: {h: {counter: {}}}
sinks: {out: {stdout: {}}}
routes: [{name: r, from: pods, handler: h, to: out}]
`, "a_test.yaml": `cases: [{name: a, given: {deltas: [{source: pods, added: {metadata: {name: a}}}]}, expect: [{route: r, any: true}]}]`,
	} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	with, opened := components(), 0
	open := with.Handlers[0].Open
	with.Handlers[0] = counters(func(ctx context.Context, n config.Node, env plugins.HandlerEnv) (plugins.Handler, error) {
		opened++
		if at, timed := ctx.Deadline(); timed {
			t.Errorf("it has to be open by %v", at)
		}
		return open(ctx, n, env)
	})
	sum, err := cases.Run(t.Context(), cases.Options{Components: with, Out: io.Discard, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
	if err != nil || sum.Failed > 0 || len(sum.Invalid) > 0 || opened != 1 {
		t.Fatal(sum, err, opened)
	}
}
