package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const evalUsage = `Usage:
  router eval EXPRESSION -object FILE     what a CEL expression says about an object, as JSON; no cluster is needed

Flags:
  -object FILE    the object, in YAML or JSON; - is standard input
  -old FILE       the state before: then op is updated
  -op OP          added, updated, deleted, deselected or sync
  -config FILE    a configuration, for its define and its sources
  -source SOURCE  the source that the object comes from, if several have such objects
  -schemas FOLDER what router schema pull has saved (default: what the configuration says)

It exits with 1 if the expression has no value for this object, 2 if it or something else that was given is wrong.
`

const explainUsage = `Usage:
  router explain -config FILE -object FILE     why each route wants a change of an object or not; no cluster is needed

Flags:
  -config FILE    the configuration
  -object FILE    the object, in YAML or JSON; - is standard input
  -old FILE       the state before: then op is updated
  -op OP          added, updated, deleted, deselected or sync
  -source SOURCE  the source that the object comes from (default: each that has such objects)
  -route ROUTE    only this route
  -o FORMAT       text or json (default text)
  -schemas FOLDER what router schema pull has saved (default: what the configuration says)
`

// offline is what the commands that need no cluster have in common.
type offline struct {
	input       explain.Input
	object, old string // paths
	output      string
	route       string
}

func (o *offline) flags(flags *flag.FlagSet) {
	flags.StringVar(&o.object, "object", "", "")
	flags.StringVar(&o.old, "old", "", "")
	flags.StringVar(&o.input.Op, "op", "", "")
	flags.StringVar(&o.input.Config, "config", "", "")
	flags.StringVar(&o.input.Source, "source", "", "")
	flags.StringVar(&o.input.Schemas, "schemas", "", "")
	o.input.Components = components()
}

// read reads the files.
func (o *offline) read() (err error) {
	if o.object == "" {
		return errors.New("-object FILE is missing")
	}
	if o.input.Object, err = readFile(o.object); err == nil && o.old != "" {
		o.input.Old, err = readFile(o.old)
	}
	return err
}

// maxObject is more than an API server takes, in bytes.
const maxObject = 64 << 20

func readFile(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, maxObject))
	}
	return os.ReadFile(path)
}

// eval evaluates an expression.
func eval(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &offline{}
	flags := newFlags("router eval", io.Discard)
	o.flags(flags)
	texts, err := intersperse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && len(texts) == 1 && texts[0] == "help" && o.object == "":
		fmt.Fprint(stdout, evalUsage)
		return exitOK
	case err == nil && len(texts) != 1:
		err = errors.New("one expression is needed; put it in quotes")
	case err == nil:
		err = o.read()
	}
	var value []byte
	if err == nil {
		value, err = explain.Eval(ctx, texts[0], o.input)
	}
	if err != nil {
		return refuse("router eval", err, stderr)
	}
	fmt.Fprintf(stdout, "%s\n", indented(value))
	return exitOK
}

func indented(value []byte) []byte {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if encoder.Encode(json.RawMessage(value)) != nil {
		return value
	}
	return []byte(strings.TrimSuffix(out.String(), "\n"))
}

// refuse says what is wrong, with the line that it is in.
func refuse(command string, err error, stderr io.Writer) int {
	var problems config.Problems
	var failed explain.EvalError
	switch {
	case errors.As(err, &failed):
		fmt.Fprintln(stderr, failed.Quoted())
		return exitFailed
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, problems.Quoted())
	default:
		fmt.Fprintf(stderr, "%s: %v\n", command, err)
	}
	return exitUsage
}

// runExplain says why routes want an object or not.
func runExplain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := &offline{}
	flags := newFlags("router explain", io.Discard)
	o.flags(flags)
	flags.StringVar(&o.route, "route", "", "")
	flags.StringVar(&o.output, "o", "text", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, explainUsage)
		return exitOK
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.input.Config == "":
		err = errors.New("-config FILE is missing")
	case o.output != "text" && o.output != "json":
		err = fmt.Errorf("-o is text or json, not %q", o.output)
	default:
		err = o.read()
	}
	var all []explain.Explanation
	if err == nil {
		all, err = o.explain(ctx)
	}
	if err != nil {
		return refuse("router explain", err, stderr)
	}
	if o.output == "json" {
		// what it is made of always has a JSON text
		_ = (&cli.Remote{Stdout: stdout}).PrintJSON(all)
		return exitOK
	}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		printExplanation(stdout, e)
	}
	return exitOK
}

func (o *offline) explain(ctx context.Context) ([]explain.Explanation, error) {
	all, err := explain.Routes(ctx, o.input)
	if err != nil || o.route == "" {
		return all, err
	}
	var known []string
	for i := range all {
		known = known[:0]
		var meant []explain.RouteExplanation // a downstream route may have several events
		for _, r := range all[i].Routes {
			if known = append(known, r.Route); r.Route == o.route {
				meant = append(meant, r)
			}
		}
		if all[i].Routes = meant; len(meant) == 0 {
			return nil, fmt.Errorf("there is no route %q%s", o.route, config.Suggest(o.route, known))
		}
	}
	return all, nil
}

func printExplanation(stdout io.Writer, e explain.Explanation) {
	cli.Printf(stdout, "%s\n", e.Delta)
	for _, r := range e.Routes {
		name := r.Route
		if r.Event != "" {
			name += ", event " + r.Event
		}
		cli.Printf(stdout, "\nroute %s: %s\n", name, r.Verdict)
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		for _, t := range r.Tests {
			at := ""
			if t.At != "" {
				at = "  (" + t.At + ")"
			}
			cli.Printf(w, "  %s\t%s: %s%s\n", t.Result, t.What, short(t.Text), at)
			if t.Reason != "" {
				cli.Printf(w, "  \t  %s\n", t.Reason)
			}
			for _, v := range t.Values {
				if v.Reason == "" {
					cli.Printf(w, "  \t  %s = %s\n", short(v.Text), short(v.JSON))
				} else if v.Reason != t.Reason {
					cli.Printf(w, "  \t  %s: %s\n", short(v.Text), v.Reason)
				}
			}
		}
		_ = w.Flush()
		for _, then := range r.Then {
			cli.Printf(stdout, "  → %s\n", then)
		}
	}
}
