package plugincmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/solo"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// alone has the flags of the commands that run one handler alone.
type alone struct {
	config, handler string
	components      compile.Components
	logging         cli.Logging
	compiled        cli.Compiled
}

func (a *alone) flags(f *cli.Flags, components compile.Components, level slog.Level) {
	f.ConfigVar(&a.config, "the configuration with the handler")
	f.StringVar(&a.handler, "handler", "", "`HANDLER` the handler, if the configuration has several")
	a.components = components
	a.logging.AddFlags(f, level)
	a.compiled.AddFlag(f)
	cli.PolicyFlags(f, &a.components.Policy)
}

func (a *alone) open(ctx context.Context, s cli.Streams) (*solo.Handler, error) {
	log := a.logging.New(s.Err)
	h, err := solo.Open(ctx, solo.Options{Config: a.config, Name: a.handler, Components: a.components, Log: log, Cache: a.compiled.Folder(log)})
	return h, cli.Invalid(err)
}

// runCommand passes objects to a handler.
func runCommand(components compile.Components) cli.Command {
	return cli.Command{
		Name:    "run",
		Args:    "FILE…",
		Summary: "Pass objects or a recording to a handler, and print its results",
		Description: `
A FILE has objects in YAML or JSON, also lists as kubectl get prints them, or is a recording of router record; - is standard
input. The first state of an object is added, a further one in the same file is an update. The handler runs in the router's
sandbox, but alone: no filter is evaluated, nothing is delivered, look-ups find nothing and HTTP requests fail. The exit
code is 1 if a delta failed.`,
		Examples: []cli.Example{
			{Line: "kubectl get pods -A -o yaml | router plugin run -", Text: "the pods of a cluster"},
			{Line: "router plugin run -handler phase -o json changes.jsonl.zst", Text: "a recording, results in JSON"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			a := &alone{}
			var output string
			a.flags(f, components, slog.LevelInfo)
			f.ChoiceVar(&output, "o", "text", []string{"text", "json"}, "the format of the output")
			return func(ctx context.Context, s cli.Streams, files []string) error {
				if len(files) == 0 {
					return cli.Mistakef("name a file with objects, as in router plugin run pod.yaml")
				}
				h, err := a.open(ctx, s)
				if err != nil {
					return err
				}
				defer func() { _ = h.Close(context.WithoutCancel(ctx)) }() // all results are printed
				p := &resultPrinter{s: s, json: output == "json"}
				for _, file := range files {
					if err := runFile(ctx, s, h, file, p); err != nil {
						return err
					}
				}
				if p.failed {
					return cli.Exit(cli.CodeFailed)
				}
				return nil
			}
		},
	}
}

// runFile passes the deltas of a file to the handler.
func runFile(ctx context.Context, s cli.Streams, h *solo.Handler, file string, p *resultPrinter) error {
	text, err := cli.ReadFile(s, file)
	if err != nil {
		return cli.Invalid(err)
	}
	for d, err := range deltasOf(h, text) {
		if err != nil {
			return cli.Invalid(fmt.Errorf("%s: %w", file, err))
		}
		result, err := h.Handle(ctx, d)
		if err != nil {
			return err
		}
		if err := p.print(d, result); err != nil {
			return err
		}
	}
	return nil
}

// deltasOf returns the deltas of a recording or of objects.
func deltasOf(h *solo.Handler, text []byte) iter.Seq2[*event.Delta, error] {
	if recording.Is(text) {
		return h.Recording(bytes.NewReader(text))
	}
	return func(yield func(*event.Delta, error) bool) {
		all, err := h.Objects(text)
		if err != nil {
			yield(nil, err)
		}
		for _, d := range all {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// resultPrinter prints the results of a handler.
type resultPrinter struct {
	s      cli.Streams
	json   bool
	failed bool // a delta failed, or would be tried again
}

// printedResult is a result in JSON.
type printedResult struct {
	Delta   string         `json:"delta"`
	Verdict string         `json:"verdict"`
	Error   string         `json:"error,omitempty"`
	Events  []printedEvent `json:"events"`
}

type printedEvent struct {
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Data    json.RawMessage `json:"data"`
}

func (p *resultPrinter) print(d *event.Delta, r plugins.Result) error {
	printed := printedResult{Delta: d.String(), Verdict: r.Verdict.String(), Events: []printedEvent{}}
	if r.Err != nil {
		printed.Error = r.Err.Error()
	}
	p.failed = p.failed || r.Verdict == plugins.Fail || r.Verdict == plugins.Retry
	for i, made := range r.Events {
		e := event.New(d, "", i, made.Data)
		if made.Type != "" {
			e.Type = made.Type
		}
		if made.Subject != "" {
			e.Subject = made.Subject
		}
		printed.Events = append(printed.Events, printedEvent{e.Type, e.Subject, e.Data})
	}
	if p.json {
		line, err := json.Marshal(printed)
		if err != nil {
			return fmt.Errorf("%s: its result is not JSON: %w", d, err)
		}
		_, err = fmt.Fprintf(p.s.Raw, "%s\n", line)
		return err
	}
	cli.Printf(p.s.Out, "%s: %s%s\n", printed.Delta, printed.Verdict, reason(printed.Error))
	for _, e := range printed.Events {
		cli.Printf(p.s.Out, "  %s %s %s\n", e.Type, e.Subject, e.Data)
	}
	return nil
}

func reason(err string) string {
	if err == "" {
		return ""
	}
	return ": " + err
}
