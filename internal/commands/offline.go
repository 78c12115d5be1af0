package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/explain"
	"github.com/deltarouter/deltarouter/internal/remote"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// evalCommand evaluates an expression.
func evalCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "eval",
		Args:    "EXPRESSION",
		Summary: "Evaluate a CEL expression on an object, without a cluster",
		Description: `
It prints the value as JSON. It exits with 1 if the expression has no value for this object, with 2 if the expression or
another input has a mistake.`,
		Examples: []cli.Example{
			{Line: "router eval 'object.spec.replicas > 2' -object web.yaml", Text: "an object in a file"},
			{Line: "kubectl get pod web-0 -o json | router eval object.status.phase -object -", Text: "an object of the cluster"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			o := &offline{}
			f.OptionalConfigVar(&o.input.Config, "a configuration, for its define and its sources")
			o.flags(f, made)
			return o.eval
		},
	}
}

// explainCommand explains the decisions of routes.
func explainCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "explain",
		Summary: "Explain why each route wants a change of an object or not, without a cluster",
		Description: `
Look-ups find the objects of -given, or those that the router of -api or -in has cached. Without both, a test with a look-up is
unknown. The values in Secrets come redacted from a running router.`,
		Examples: []cli.Example{
			{Line: "router explain -object pod.yaml", Text: "the pod is new"},
			{Line: "kubectl get pods,nodes -A -o yaml >all.yaml; router explain -object node.yaml -given all.yaml", Text: "with look-ups"},
			{Line: "router explain -object new.yaml -old old.yaml -route alerts", Text: "one route, and an update"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			o := &offline{}
			f.ConfigVar(&o.input.Config, "the configuration")
			o.flags(f, made)
			f.StringVar(&o.route, "route", "", "`ROUTE` only this route")
			f.ChoiceVar(&o.output, "o", "text", []string{"text", "json"}, "the format of the output")
			return o.runExplain
		},
	}
}

// offline has the flags that the commands without a cluster share.
type offline struct {
	input       explain.Input
	object, old string   // paths
	given       []string // paths
	router      remote.Options
	output      string
	route       string
}

func (o *offline) flags(f *cli.Flags, made compile.Components) {
	f.StringVar(&o.object, "object", "", "`FILE` the object, in YAML or JSON; - is standard input")
	f.StringVar(&o.old, "old", "", "`FILE` the state before; op is updated then")
	f.ChoiceVar(&o.input.Op, "op", "", []string{"added", "updated", "deleted", "deselected", "sync"}, "the op of the change")
	f.StringVar(&o.input.Source, "source", "", "`SOURCE` the source of the object, if several have such objects")
	f.StringsVar(&o.given, "given", "`FILE` the other objects of the cluster, for look-ups: YAML or JSON, also lists; no others exist then")
	cli.AddRouter(f, &o.router, "look other objects up in the cache of the router with this listen.api")
	schemasVar(f, &o.input.Schemas)
	o.input.Components = made
}

// read reads the files.
func (o *offline) read(ctx context.Context, s cli.Streams) (err error) {
	if o.object == "" {
		return cli.Mistakef("-object FILE is missing")
	}
	asks := o.router != remote.Options{}
	switch err := o.router.Check(); {
	case err != nil:
		return cli.Mistakef("%s", err.Error())
	case len(o.given) > 0 && asks:
		return cli.Mistakef("-given and a router (-api or -in) both tell the other objects: leave one of them out")
	case asks && o.router.Addr == "" && o.router.Pod == "":
		return cli.Mistakef("name the router too, with -in or -api")
	}
	paths := append([]string{o.input.Config, o.object, o.old}, o.given...)
	if others := slices.DeleteFunc(paths, func(path string) bool { return path != "-" }); len(others) > 1 {
		return cli.Mistakef("only one of -config, -object, -old and -given can be standard input")
	}
	if o.input.Object, err = cli.ReadFile(s, o.object); err == nil && o.old != "" {
		o.input.Old, err = cli.ReadFile(s, o.old)
	}
	for _, path := range o.given {
		var text []byte
		if err == nil {
			text, err = cli.ReadFile(s, path)
			o.input.Given = append(o.input.Given, text)
		}
	}
	if err != nil || !asks {
		return cli.Invalid(err)
	}
	client, err := remote.Open(ctx, o.router)
	if err == nil {
		o.input.Objects = cached(client)
	}
	return err
}

// cached returns the objects of the running router.
func cached(client *api.Client) explain.Objects {
	return func(ctx context.Context, source string) (all [][]byte, err error) {
		query := api.Query{Source: source, Limit: getPage}
		for token := ""; ; {
			answer, err := client.Query(ctx, query, token)
			if err != nil {
				return nil, err
			}
			for _, item := range answer.Items {
				all = append(all, item)
			}
			if token = answer.Continue; token == "" {
				return all, nil
			}
		}
	}
}

// eval evaluates an expression.
func (o *offline) eval(ctx context.Context, s cli.Streams, texts []string) error {
	if len(texts) != 1 {
		return cli.Mistakef("give one expression, in quotes")
	}
	if err := o.read(ctx, s); err != nil {
		return err
	}
	value, err := explain.Eval(ctx, texts[0], o.input)
	var failed explain.EvalError
	switch {
	case errors.As(err, &failed):
		fmt.Fprintln(s.Err, failed.Quoted())
		return cli.Exit(cli.CodeFailed)
	case err != nil:
		return cli.Invalid(err)
	}
	fmt.Fprintf(s.Out, "%s\n", indented(value))
	return nil
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

// runExplain explains the decisions of routes.
func (o *offline) runExplain(ctx context.Context, s cli.Streams, _ []string) error {
	if err := o.read(ctx, s); err != nil {
		return err
	}
	all, err := o.explain(ctx)
	switch {
	case err != nil:
		return cli.Invalid(err)
	case o.output == "json":
		return s.PrintJSON(all)
	}
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(s.Out)
		}
		printExplanation(s.Out, e)
	}
	return nil
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
