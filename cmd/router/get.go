package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

const getUsage = `Usage:
  router get                                   which sources there are
  router get SOURCE [NAME]                     what the router has cached of a source
  router get SOURCE -index INDEX=VALUE         what one of its indexes has under a value
  router get SOURCE -filter EXPRESSION         what matches, as a route's filter with op "sync" would
  router get -active ROUTE                     for which objects the condition of a route (when) holds, or which are gone (ops: deleted
                                               with for): since when, and when it is told

Flags:
  -config FILE         the running router's configuration, to find listen.api
  -api ADDR            listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
  -n NAMESPACE         only of this namespace
  -index INDEX=VALUE   one of the source's indexes, or name, namespace or owner (a uid)
  -filter EXPRESSION   CEL; an object that lacks a field which it needs does not match
  -o FORMAT            table, json, yaml or name (default table)

The values in Secrets are never shown. It exits with 1 if there is no object of that NAME.
`

// getPage is how many objects are asked for at once.
const getPage = 500

// get shows what the running router has cached.
type get struct {
	cli.Remote

	query  api.Query
	named  bool   // by NAME: one object is meant
	active string // the route that is asked about; empty: none is
}

// getObjects asks the running router for objects.
func getObjects(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	g := &get{Remote: cli.Remote{Stdout: stdout, Stderr: stderr, Formats: []string{"table", "json", "yaml", "name"}}}
	err := g.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, getUsage)
		return exitOK
	}
	if err != nil {
		cli.Printf(stderr, "router get: %v\n", err)
		return exitUsage
	}
	do := g.objects
	switch {
	case g.active != "":
		do = g.actives
	case g.query.Source == "":
		do = g.sources
	}
	if err := do(ctx); err != nil {
		cli.Printf(stderr, "router get: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// parse reads flags and names, in any order, and finds the router.
func (g *get) parse(args []string) error {
	flags := newFlags("router get", io.Discard)
	g.AddFlags(flags)
	index := flags.String("index", "", "")
	flags.StringVar(&g.query.Namespace, "n", "", "")
	flags.StringVar(&g.query.Filter, "filter", "", "")
	flags.StringVar(&g.active, "active", "", "")
	names, err := intersperse(flags, args)
	switch {
	case err != nil:
		return err
	case len(names) == 1 && names[0] == "help":
		return flag.ErrHelp
	case g.active != "" && (len(names) > 0 || *index != "" || g.query.Filter != "" || g.query.Namespace != ""):
		return errors.New("-active ROUTE stands alone: all objects of the route are shown")
	case len(names) > 2:
		return fmt.Errorf("unexpected argument %q: one source and one name", names[2])
	case len(names) == 0 && (*index != "" || g.query.Filter != "" || g.query.Namespace != ""):
		return errors.New("name the source: router get SOURCE …")
	}
	if len(names) > 0 {
		g.query.Source = names[0]
	}
	if len(names) > 1 {
		g.named = true
		g.name(names[1])
	}
	if *index != "" {
		var ok bool
		if g.query.Index, g.query.Value, ok = strings.Cut(*index, "="); !ok || g.query.Index == "" {
			return fmt.Errorf("-index %s: write it like byNode=n1", *index)
		}
	}
	g.query.Limit = getPage
	return g.Connect()
}

// name reads NAME or NAMESPACE/NAME.
func (g *get) name(text string) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		g.query.Name = text
		return
	}
	g.query.Namespace, g.query.Name = namespace, name
}

// intersperse parses flags that may stand between and behind the arguments, which it returns.
func intersperse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) == 0 {
			return rest, nil
		}
		rest, args = append(rest, args[0]), args[1:]
	}
}

func (g *get) sources(ctx context.Context) error {
	sources, err := g.Client.Sources(ctx)
	if err != nil {
		return err
	}
	switch g.Output {
	case "json":
		return g.PrintJSON(sources)
	case "yaml":
		return g.PrintYAML(sources)
	case "name":
		for _, s := range sources {
			cli.Printf(g.Stdout, "%s\n", s.Name)
		}
		return nil
	}
	w := tabwriter.NewWriter(g.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tRESOURCE\tNAMESPACES\tOBJECTS\tSYNCED\tINDEXES")
	for _, s := range sources {
		namespaces := "all"
		if len(s.Namespaces) > 0 {
			namespaces = strings.Join(s.Namespaces, ",")
		}
		cli.Printf(w, "%s\t%s\t%s\t%d\t%t\t%s\n", s.Name, s.Resource, namespaces, s.Objects, s.Synced, strings.Join(s.Indexes, ","))
	}
	return w.Flush()
}

// objects asks for page after page, and prints each as it comes.
func (g *get) objects(ctx context.Context) error {
	p := printer{get: g, table: tabwriter.NewWriter(g.Stdout, 0, 0, 2, ' ', 0)}
	token, absent := "", 0
	var answer api.Answer
	for {
		var err error
		if answer, err = g.Client.Query(ctx, g.query, token); err != nil {
			return err
		}
		if token == "" && !answer.Synced {
			cli.Printf(g.Stderr, "source %s is not complete yet: %s\n", answer.Source, answer.Reason)
		}
		absent += answer.Absent
		for _, item := range answer.Items {
			if err := p.print(item); err != nil {
				return err
			}
		}
		if token = answer.Continue; token == "" {
			break
		}
	}
	if absent > 0 {
		cli.Printf(g.Stderr, "%s without a field that the filter needs, which is no match: write has(), or .? with orValue()\n", cli.Count(absent, "object"))
	}
	return p.end(answer)
}

// printer prints objects in the format that is asked for.
type printer struct {
	*get

	table *tabwriter.Writer
	n     int
}

// shown is what a table shows of an object.
type shown struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string    `json:"name"`
		Namespace         string    `json:"namespace"`
		ResourceVersion   string    `json:"resourceVersion"`
		CreationTimestamp time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
}

func (p *printer) print(item json.RawMessage) error {
	p.n++
	var s shown
	_ = json.Unmarshal(item, &s) // of what is not as it should be, as much as is
	m := s.Metadata
	switch p.Output {
	case "json":
		return p.printJSON(item)
	case "yaml":
		if p.n > 1 {
			fmt.Fprintln(p.Stdout, "---")
		}
		return p.PrintYAML(item)
	case "name":
		key := m.Name
		if m.Namespace != "" {
			key = m.Namespace + "/" + m.Name
		}
		cli.Printf(p.Stdout, "%s\n", key)
		return nil
	}
	if p.n == 1 {
		cli.Printf(p.table, "NAMESPACE\tNAME\tAGE\tVERSION\n")
	}
	born := "-"
	if !m.CreationTimestamp.IsZero() {
		born = age(time.Since(m.CreationTimestamp))
	}
	cli.Printf(p.table, "%s\t%s\t%s\t%s\n", dash(m.Namespace), m.Name, born, dash(m.ResourceVersion))
	return nil
}

// printJSON prints one object as it is, and several as a list that kubectl understands.
func (p *printer) printJSON(item json.RawMessage) error {
	if p.named {
		return p.PrintJSON(item)
	}
	opening := ",\n"
	if p.n == 1 {
		opening = `{"apiVersion": "v1", "kind": "List", "items": [` + "\n"
	}
	_, err := fmt.Fprintf(p.Stdout, "%s%s", opening, item)
	return err
}

// end finishes what was begun. It is an error if one object was meant and there is none.
func (p *printer) end(answer api.Answer) error {
	if p.n == 0 && p.named {
		return fmt.Errorf("source %s has no object %q", answer.Source, strings.TrimPrefix(p.query.Namespace+"/"+p.query.Name, "/"))
	}
	switch {
	case p.Output == "json" && p.n == 0:
		fmt.Fprintf(p.Stdout, `{"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": %q}}`+"\n", answer.ResourceVersion)
	case p.Output == "json" && !p.named:
		fmt.Fprintf(p.Stdout, "\n], \"metadata\": {\"resourceVersion\": %q}}\n", answer.ResourceVersion)
	case p.Output == "table" && p.n == 0:
		fmt.Fprintln(p.Stderr, "No objects.")
	}
	return p.table.Flush()
}
