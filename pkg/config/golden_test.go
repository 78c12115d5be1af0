package config_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestGolden parses the config.yaml of each archive. The file problems of the archive has the exact
// text of the problems. An archive without it is valid, and its file config describes the
// configuration.
func TestGolden(t *testing.T) {
	// Guarantee: chain-changes, chain-checked
	t.Setenv("REGION", "eu")
	t.Setenv("EMPTY", "")
	t.Setenv("BURST", "20")
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			golden(t, file, archive)
		})
	}
}

func golden(t *testing.T, file string, archive *txtar.Archive) {
	t.Helper()
	if len(archive.Files) == 0 || archive.Files[0].Name != "config.yaml" {
		t.Fatal("the first file is not config.yaml")
	}
	cfg, problems := config.Parse("config.yaml", archive.Files[0].Data, config.Policy{})
	want := txtar.File{Name: "problems", Data: []byte(problems.Error() + "\n")}
	if len(problems) == 0 {
		want = txtar.File{Name: "config", Data: []byte(describe(cfg))}
	}
	if *update {
		archive.Files = []txtar.File{archive.Files[0], want}
		must.Succeed(t, os.WriteFile(file, txtar.Format(archive), 0o644))
		return
	}
	if len(archive.Files) != 2 || archive.Files[1].Name != want.Name {
		t.Fatalf("the archive expects something else than %s:\n%s", want.Name, want.Data)
	}
	if got, want := string(want.Data), string(archive.Files[1].Data); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// describe returns a configuration as text, in a fixed order.
func describe(cfg *config.Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %+v\nstate %+v\nlisten %+v\n", cfg.Cluster, cfg.State, cfg.Listen)
	if h := cfg.History; h != nil {
		fmt.Fprintf(&b, "history on=%t %+v\n", h.IsOn(), h.HistoryForm)
	}
	if f := cfg.Fleet; f != nil {
		fmt.Fprintf(&b, "fleet %s: servers %q credentials %+v tls %+v replicas=%d lease=%s wait=%t keys=%+v %+v accept=%+v %+v unsigned=%t\n",
			f.Name, f.NATS.Servers, f.NATS.Credentials, f.NATS.TLS, f.Replicas, f.Lease, f.Wait, f.Keys.Members, f.Keys.Workers, f.Keys.Accept.Members, f.Keys.Accept.Workers, f.Keys.Accept.Unsigned)
	}
	for name, e := range inOrder(cfg.Define) {
		fmt.Fprintf(&b, "define %s: %q\n", name, e.Text)
	}
	for name, s := range inOrder(cfg.Sources) {
		fmt.Fprintf(&b, "source %s: %s %q labels=%q fields=%q excludeFields=%q managedFields=%t resync=%s cache=%s secrets=%t\n", name, s.Resource,
			s.Namespaces, s.LabelSelector, s.FieldSelector, s.ExcludeFields, s.ManagedFields, s.Resync, s.Cache, s.Secrets)
		for index, exprs := range inOrder(s.Indexes) {
			for _, e := range exprs {
				fmt.Fprintf(&b, "  index %s: %q\n", index, e.Text)
			}
		}
	}
	describeComponents(&b, "handler", cfg.Handlers)
	describeComponents(&b, "sink", cfg.Sinks)
	for _, r := range cfg.Routes {
		fmt.Fprintf(&b, "route %s: from %q ops %q handler %q to %q\n", r.Name, r.From, r.Ops, r.Handler, targets(r.To))
		expressions := map[string]*config.Expr{"emit": r.Emit, "key": r.Key}
		if r.Filter != nil {
			expressions["filter"] = &r.Filter.Expr
			for source, e := range r.Filter.By {
				expressions["filter."+source] = e
			}
			if r.Filter.By != nil {
				delete(expressions, "filter")
			}
		}
		expressions["batch.by"] = r.Batch.By
		if r.Limit != nil {
			expressions["limit.key"] = r.Limit.Key
		}
		for what, e := range inOrder(expressions) {
			if e != nil {
				fmt.Fprintf(&b, "  %s: %q\n", what, e.Text)
			}
		}
		fmt.Fprintf(&b, "  existing=%s deliver=%s overflow=%s onFailure=%s concurrency=%d batch={Size:%d Wait:%s} queue=%+v retry=%+v\n",
			r.Existing, r.Deliver, r.Overflow, r.OnFailure, r.Concurrency, r.Batch.Size, r.Batch.Wait, r.Queue, r.Retry)
		if r.Limit != nil {
			fmt.Fprintf(&b, "  limit every=%s burst=%d\n", r.Limit.Every, r.Limit.Burst)
		}
		if w := r.Workers; w != nil {
			fmt.Fprintf(&b, "  workers partitions=%d pending=%d\n", w.Partitions, w.Pending)
		}
		if r.Debounce.Quiet > 0 || r.MaxAge > 0 {
			fmt.Fprintf(&b, "  debounce=%+v maxAge=%s\n", r.Debounce, r.MaxAge)
		}
	}
	return b.String()
}

func describeComponents(b *strings.Builder, what string, components map[string]*config.Component) {
	for name, c := range inOrder(components) {
		data, err := c.Config.JSON()
		fmt.Fprintf(b, "%s %s: %s %s %v\n", what, name, c.Kind, data, err)
	}
}

// targets returns the names of targets, with the names of routes.
func targets(all []config.Target) (names []string) {
	for i := range all {
		name := all[i].Name()
		if all[i].Route != "" {
			name += " = " + all[i].Route
		}
		names = append(names, name)
	}
	return names
}
