package plugincmd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/callrecord"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/solo"
)

// replayCommand repeats the call of a dead letter.
func replayCommand(components compile.Components) cli.Command {
	return cli.Command{
		Name:    "replay",
		Args:    "[LETTER]",
		Summary: "Repeat the failed call of a dead letter, and print the fuel of each function",
		Description: `
LETTER is the id of a dead letter of a running router, as router dlq list shows it. The handler of -config repeats the call
in the router's sandbox: it gets the recorded deltas, clock, random numbers, and answers of look-ups, HTTP and kv. Nothing is
sent or stored. Fuel is that of a function without the functions that it calls. The exit code is 1 if the delta fails again.`,
		Examples: []cli.Example{
			{Line: "router plugin replay 17", Text: "dead letter 17 of the running router"},
			{Line: "router dlq show 17 > letter.json; router plugin replay -file letter.json", Text: "on another machine"},
			{Line: "router plugin replay -other-module 17", Text: "with a module that was changed since"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &replay{}
			var output string
			r.flags(f, components, slog.LevelInfo)
			f.StringVar(&r.file, "file", "", "`FILE` with a dead letter, as router dlq show prints it, in place of LETTER; - is standard input")
			f.BoolVar(&r.other, "other-module", false, "also if the handler runs another module than the recorded one")
			f.ChoiceVar(&output, "o", "text", []string{"text", "json"}, "the format of the output")
			f.Group("Which router", func() { cli.AddRouter(f, &r.remote.To, "listen.api itself") })
			return func(ctx context.Context, s cli.Streams, args []string) error {
				l, err := r.letter(ctx, s, args)
				if err != nil {
					return err
				}
				rec, err := l.record()
				if err != nil {
					return cli.Invalid(r.named(err))
				}
				return r.run(ctx, s, rec, output == "json")
			}
		},
	}
}

// replay is a run of the command.
type replay struct {
	alone

	file   string
	other  bool
	remote cli.Remote
}

// letter is the part of a dead letter that the command needs.
type letter struct {
	ID   uint64          `json:"id"`
	Sink string          `json:"sink"`
	Call json.RawMessage `json:"call"`
}

// letter returns the dead letter that the command line names.
func (r *replay) letter(ctx context.Context, s cli.Streams, args []string) (*letter, error) {
	switch {
	case r.file != "" && len(args) == 0:
		text, err := cli.ReadFile(s, r.file)
		if err != nil {
			return nil, cli.Invalid(err)
		}
		l, err := parseLetter(text)
		if err != nil {
			return nil, cli.Invalid(r.named(err))
		}
		return l, nil
	case r.file != "" || len(args) != 1:
		return nil, cli.Mistakef("name one dead letter by its id, see router dlq list, or a file with -file")
	}
	id, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return nil, cli.Mistakef("%q is not a valid id: router dlq list shows the ids; a file needs -file", args[0])
	}
	r.remote.Config = r.config
	if err := r.remote.Connect(ctx); err != nil {
		return nil, err
	}
	found, err := r.remote.Client.Letter(ctx, id)
	if err != nil {
		return nil, err
	}
	return &letter{found.ID, found.Sink, found.Call}, nil
}

// named adds the file to an error about its content.
func (r *replay) named(err error) error {
	if r.file == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.file, err)
}

// parseLetter parses the output of router dlq show, which may come from anywhere.
func parseLetter(text []byte) (*letter, error) {
	var l letter
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("it is not one dead letter in JSON, as router dlq show ID prints it: %w", err)
	}
	return &l, nil
}

// record returns the record of the failed call, with a call.
func (l *letter) record() (*callrecord.Record, error) {
	switch {
	case len(l.Call) == 0 && l.Sink != "":
		return nil, fmt.Errorf("dead letter %d has no record of a call: the sink %q refused its event, the handler did not fail", l.ID, l.Sink)
	case len(l.Call) == 0:
		return nil, fmt.Errorf("dead letter %d has no record of a call: its handler runs no module, its route gets Secrets, you may not list all objects of the route, its batch had too many records, or an older version has written it", l.ID)
	}
	rec, err := callrecord.Decode(l.Call)
	switch {
	case err != nil:
		return nil, fmt.Errorf("dead letter %d: %w", l.ID, err)
	case rec.With != "":
		return nil, fmt.Errorf("dead letter %d failed in the same call as %s: replay the dead letter of that one, which has the record; router dlq list shows its id", l.ID, rec.With)
	case len(rec.Calls) == 0:
		return nil, fmt.Errorf("the record of dead letter %d has no deltas: they exceed %d KiB", l.ID, callrecord.MaxSize>>10)
	}
	return rec, nil
}

func (r *replay) run(ctx context.Context, s cli.Streams, rec *callrecord.Record, asJSON bool) error {
	if r.handler == "" {
		r.handler = rec.Handler
	}
	h, err := solo.Open(ctx, solo.Options{
		Config: r.config, Name: r.handler, Components: r.components, Log: r.logging.New(s.Err), Replay: &callrecord.Replay{Record: rec},
	})
	if err != nil {
		return cli.Invalid(err)
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }() // it has repeated the call
	if h.Digest() != rec.Module && !r.other {
		return cli.Invalid(fmt.Errorf("the handler %q runs %s, and the call was recorded with %s: get that module, or add -other-module", h.Name, short(h.Digest()), short(rec.Module)))
	}
	o, err := h.Replay(ctx)
	if err != nil {
		return err
	}
	p := printedReplay{Handler: h.Name, Kind: h.Kind, Module: h.Digest(), Recorded: recorded{rec.Error, rec.Fuel}, Outcome: o, Notes: notes(rec, o)}
	if asJSON {
		err = s.PrintJSON(p)
	} else {
		p.print(s, rec)
	}
	if err == nil && (o.Verdict == "fail" || o.Verdict == "retry" || o.Left != "") {
		return cli.Exit(cli.CodeFailed)
	}
	return err
}

// short returns the first digits of a SHA-256.
func short(digest string) string {
	const digits = 12
	if digest == "" {
		return "an unknown module"
	}
	return "module " + digest[:min(len(digest), digits)]
}

// printedReplay is a replay in JSON.
type printedReplay struct {
	Handler  string   `json:"handler"`
	Kind     string   `json:"kind"`
	Module   string   `json:"module"`
	Recorded recorded `json:"recorded"`
	*callrecord.Outcome

	Notes []string `json:"notes,omitempty"` // why the replay may differ from the call
}

// recorded is the result of the recorded call.
type recorded struct {
	Error string `json:"error"`
	Fuel  int64  `json:"fuel"`
}

// notes returns the reasons why a replay may differ from the call.
func notes(rec *callrecord.Record, o *callrecord.Outcome) (all []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(o.Left != "", "%s; the replay ends there", o.Left)
	add(o.Module != rec.Module, "the handler runs another module than the recorded one")
	add(o.Settings != rec.Settings, "the configuration or the limits of the handler have changed since")
	add(rec.Earlier > 0, "the guest had handled %s before, which the record does not have: the result differs if the guest keeps state from call to call, and the fuel if it had its buffers already", cli.Count(rec.Earlier, "call"))
	add(rec.Omitted > 0, "the call had %s more, which the record does not have: its fuel differs, and so may its clock and random numbers", cli.Count(rec.Omitted, "delta"))
	return all
}

// mostFunctions is the number of functions in a table.
const mostFunctions = 20

func (p *printedReplay) print(s cli.Streams, rec *callrecord.Record) {
	o, last := p.Outcome, rec.Calls[len(rec.Calls)-1]
	cli.Printf(s.Out, "handler %s (%s), %s: %s", p.Handler, p.Kind, short(p.Module), last.Batch[rec.Delta])
	if n := len(last.Batch); n > 1 {
		cli.Printf(s.Out, ", delta %d of %d of its call", rec.Delta+1, n)
	}
	cli.Printf(s.Out, "\nverdict: %s%s%s\n", o.Verdict, reason(o.Error), sameAs(o.Error == rec.Error, "recorded: "+rec.Error))
	for i, name := range o.Place {
		cli.Printf(s.Out, "%s%s\n", [2]string{"     in: ", "         "}[min(i, 1)], name)
	}
	cli.Printf(s.Out, "fuel: %d of %d%s\n", o.Fuel, o.FuelLimit, sameAs(o.Fuel == rec.Fuel, fmt.Sprintf("recorded: %d", rec.Fuel)))
	for _, note := range p.Notes {
		cli.Printf(s.Out, "note: %s\n", note)
	}
	cli.Printf(s.Out, "\n")
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	cli.Printf(w, "FUEL\tPART\tCALLS\tFUNCTION\n")
	rest := callrecord.Function{Name: fmt.Sprintf("(%d more)", len(o.Functions)-mostFunctions)}
	for i, f := range o.Functions {
		if i < mostFunctions {
			printFunction(w, f, o.Fuel)
			continue
		}
		rest.Fuel, rest.Calls = rest.Fuel+f.Fuel, rest.Calls+f.Calls
	}
	if len(o.Functions) > mostFunctions {
		printFunction(w, rest, o.Fuel)
	}
	_ = w.Flush() // to a buffer or a terminal; its error has no other reader
}

func printFunction(w *tabwriter.Writer, f callrecord.Function, all int64) {
	cli.Printf(w, "%d\t%.1f %%\t%d\t%s\n", f.Fuel, 100*float64(f.Fuel)/float64(max(all, 1)), f.Calls, f.Name)
}

// sameAs says whether a result is the recorded one.
func sameAs(same bool, recorded string) string {
	if same {
		return " (as recorded)"
	}
	return " (" + strings.TrimSpace(recorded) + ")"
}
