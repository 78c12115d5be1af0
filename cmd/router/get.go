package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

// getCommand shows the cache of the running router.
func getCommand() cli.Command {
	return cli.Command{
		Name:    "get",
		Args:    "[SOURCE [NAME]]",
		Summary: "Show the sources of the running router, or objects of its cache",
		Description: `
Without SOURCE it lists the sources. NAME is NAME or NAMESPACE/NAME; it exits with 1 if there is no such object. The
values in Secrets are never shown.

-active ROUTE lists the objects for which the condition of a route (when) holds, or, for a route with a delete hold,
the deleted objects: since when, and when that is reported.`,
		Examples: []cli.Example{
			{Line: "router get", Text: "the sources, with the number of their objects and their indexes"},
			{Line: "router get pods shop/web-0 -o yaml", Text: "one object"},
			{Line: "router get pods -index byNode=n1", Text: "the objects that an index of the source has under a value"},
			{Line: `router get pods -filter 'object.status.phase == "Failed"'`, Text: "the objects that match, as with the filter of a route"},
			{Line: "router get -active alerts", Text: "the objects for which the condition of a route holds"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			g := &get{Remote: cli.Remote{Formats: []string{"table", "json", "yaml", "name"}}}
			g.AddFlags(f)
			f.StringVar(&g.index, "index", "", "`INDEX=VALUE` one of the source's indexes, or name, namespace or owner (a uid)")
			f.StringVar(&g.query.Namespace, "n", "", "`NAMESPACE` only this namespace")
			f.StringVar(&g.query.Filter, "filter", "", "`EXPRESSION` CEL; an object that lacks a field which it needs does not match")
			f.StringVar(&g.active, "active", "", "`ROUTE` the objects for which the condition of this route holds")
			return g.run
		},
	}
}

// getPage is how many objects are asked for at once.
const getPage = 500

// get shows the cache of the running router.
type get struct {
	cli.Remote

	query  api.Query
	index  string // -index
	named  bool   // by NAME: one object is meant
	active string // the route that is asked about; empty: none is
}

// run shows sources, objects, or the objects of a condition.
func (g *get) run(ctx context.Context, s cli.Streams, args []string) error {
	g.Streams = s
	if err := g.parse(args); err != nil {
		return err
	}
	if err := g.Connect(); err != nil {
		return err
	}
	switch {
	case g.active != "":
		return g.actives(ctx)
	case g.query.Source == "":
		return g.sources(ctx)
	}
	return g.objects(ctx)
}

// parse reads the arguments.
func (g *get) parse(names []string) error {
	switch {
	case g.active != "" && (len(names) > 0 || g.index != "" || g.query.Filter != "" || g.query.Namespace != ""):
		return cli.Mistakef("-active ROUTE stands alone: all objects of the route are shown")
	case len(names) > 2:
		return cli.Mistakef("unexpected argument %q: one source and one name", names[2])
	case len(names) == 0 && (g.index != "" || g.query.Filter != "" || g.query.Namespace != ""):
		return cli.Mistakef("name the source: router get SOURCE …")
	}
	if len(names) > 0 {
		g.query.Source = names[0]
	}
	if len(names) > 1 {
		g.named = true
		g.name(names[1])
	}
	if g.index != "" {
		var ok bool
		if g.query.Index, g.query.Value, ok = strings.Cut(g.index, "="); !ok || g.query.Index == "" {
			return cli.Mistakef("-index %s: write it like byNode=n1", g.index)
		}
	}
	g.query.Limit = getPage
	return nil
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
			cli.Printf(g.Out, "%s\n", s.Name)
		}
		return nil
	}
	w := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)
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
	p := printer{get: g, table: tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)}
	token, absent := "", 0
	var answer api.Answer
	for {
		var err error
		if answer, err = g.Client.Query(ctx, g.query, token); err != nil {
			return err
		}
		if token == "" && !answer.Synced {
			cli.Printf(g.Err, "source %s is not complete yet: %s\n", answer.Source, answer.Reason)
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
		cli.Printf(g.Err, "%s without a field that the filter needs, which is no match: write has(), or .? with orValue()\n", cli.Count(absent, "object"))
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
			fmt.Fprintln(p.Out, "---")
		}
		return p.PrintYAML(item)
	case "name":
		key := m.Name
		if m.Namespace != "" {
			key = m.Namespace + "/" + m.Name
		}
		cli.Printf(p.Out, "%s\n", key)
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
	_, err := fmt.Fprintf(p.Out, "%s%s", opening, item)
	return err
}

// end finishes what was begun. It is an error if one object was meant and there is none.
func (p *printer) end(answer api.Answer) error {
	if p.n == 0 && p.named {
		return fmt.Errorf("source %s has no object %q", answer.Source, strings.TrimPrefix(p.query.Namespace+"/"+p.query.Name, "/"))
	}
	switch {
	case p.Output == "json" && p.n == 0:
		fmt.Fprintf(p.Out, `{"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": %q}}`+"\n", answer.ResourceVersion)
	case p.Output == "json" && !p.named:
		fmt.Fprintf(p.Out, "\n], \"metadata\": {\"resourceVersion\": %q}}\n", answer.ResourceVersion)
	case p.Output == "table" && p.n == 0:
		fmt.Fprintln(p.Err, "No objects.")
	}
	return p.table.Flush()
}
