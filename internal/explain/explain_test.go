package explain_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/must"
)

var update = flag.Bool("update", false, "write what was got into testdata")

// TestExplain runs testdata/*.txtar: config is a configuration; object and the optional old are a
// delta. Each line of run has an op (-: added or updated), a source or -, and optionally an
// expression; without one the routes are explained. The file output has the expected output.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			must.Succeed(t, err)
			parts := map[string]*txtar.File{}
			for i := range archive.Files {
				parts[archive.Files[i].Name] = &archive.Files[i]
			}
			in := explain.Input{Object: parts["object"].Data, Config: filepath.Join(t.TempDir(), "config.yaml"), Components: components()}
			if old := parts["old"]; old != nil {
				in.Old = old.Data
			}
			must.Succeed(t, os.WriteFile(in.Config, parts["config"].Data, 0o600))
			var out strings.Builder
			for line := range strings.Lines(string(parts["run"].Data)) {
				fmt.Fprintf(&out, "> %s", line)
				out.WriteString(strings.ReplaceAll(run(t, in, strings.TrimSpace(line)), in.Config, "config.yaml"))
			}
			if *update {
				parts["output"].Data = []byte(out.String())
				must.Succeed(t, os.WriteFile(file, txtar.Format(archive), 0o600))
			}
			if want := string(parts["output"].Data); out.String() != want {
				t.Errorf("got\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}

func components() compile.Components {
	anything := func(config.Node) config.Problems { return nil }
	return compile.Components{
		Sinks:    []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("fake"), CheckFunc: anything}},
		Handlers: []plugins.HandlerKind{fakekind.Handler{Definition: fakekind.Define("fake"), CheckFunc: anything}},
	}
}

func run(t *testing.T, in explain.Input, line string) string {
	t.Helper()
	fields := append(strings.SplitN(line, " ", 3), "", "")
	op, source, expression := fields[0], fields[1], fields[2]
	if op != "-" {
		in.Op = op
	}
	if in.Op != "" && in.Op != "updated" {
		in.Old = nil
	}
	if source != "-" {
		in.Source = source
	}
	if expression != "" {
		value, err := explain.Eval(t.Context(), expression, in)
		if err != nil {
			return failure(err)
		}
		return string(value) + "\n"
	}
	all, err := explain.Routes(t.Context(), in)
	if err != nil {
		return failure(err)
	}
	var out strings.Builder
	for _, e := range all {
		fmt.Fprintf(&out, "%s from %s\n", e.Delta, e.Source)
		for _, r := range e.Routes {
			show(&out, r)
		}
	}
	return out.String()
}

func show(out *strings.Builder, r explain.RouteExplanation) {
	line := func(format string, args ...any) {
		out.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
	}
	line("%s: %s %s", r.Route, r.Verdict, r.Event)
	for _, t := range r.Tests {
		line("  %-7s %s: %s %s %s", t.Result, t.What, t.Text, t.At, t.Reason)
		for _, v := range t.Values {
			line("          %s is %s%s", v.Text, v.JSON, v.Reason)
		}
	}
	for _, then := range r.Then {
		line("  then    %s", then)
	}
}

// failure renders an error with its class.
func failure(err error) string {
	if _, ok := errors.AsType[explain.EvalError](err); ok {
		return fmt.Sprintf("no value: %v\n", err)
	} else if problems, ok := errors.AsType[config.Problems](err); ok {
		return fmt.Sprintf("mistake: %v\n", problems)
	}
	return fmt.Sprintf("error: %v\n", err)
}
