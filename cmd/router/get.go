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

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const getUsage = `Usage:
  router get                                   which sources there are
  router get SOURCE [NAME]                     what the router has cached of a source
  router get SOURCE -index INDEX=VALUE         what one of its indexes has under a value
  router get SOURCE -filter EXPRESSION         what matches, as a route's filter with op "sync" would
  router get -active ROUTE                     for which objects the condition of a route (when) holds, or which are gone (on: deleted
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
	remote

	query  api.Query
	named  bool   // by NAME: one object is meant
	active string // the route that is asked about; empty: none is
}

// getObjects asks the running router for objects.
func getObjects(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	g := &get{remote: remote{stdout: stdout, stderr: stderr, formats: []string{"table", "json", "yaml", "name"}}}
	err := g.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, getUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "router get: %v\n", err)
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
		fmt.Fprintf(stderr, "router get: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// parse reads flags and names, in any order, and finds the router.
func (g *get) parse(args []string) error {
	flags := newFlags("router get", io.Discard)
	g.flags(flags)
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
	return g.connect()
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
	sources, err := g.client.Sources(ctx)
	if err != nil {
		return err
	}
	switch g.output {
	case "json":
		return g.json(sources)
	case "yaml":
		return g.yaml(sources)
	case "name":
		for _, s := range sources {
			fmt.Fprintln(g.stdout, s.Name)
		}
		return nil
	}
	w := tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tRESOURCE\tNAMESPACES\tOBJECTS\tSYNCED\tINDEXES")
	for _, s := range sources {
		namespaces := "all"
		if len(s.Namespaces) > 0 {
			namespaces = strings.Join(s.Namespaces, ",")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%t\t%s\n", s.Name, s.Resource, namespaces, s.Objects, s.Synced, strings.Join(s.Indexes, ","))
	}
	return w.Flush()
}

// objects asks for page after page, and prints each as it comes.
func (g *get) objects(ctx context.Context) error {
	p := printer{get: g, table: tabwriter.NewWriter(g.stdout, 0, 0, 2, ' ', 0)}
	token, absent := "", 0
	var answer api.Answer
	for {
		var err error
		if answer, err = g.client.Query(ctx, g.query, token); err != nil {
			return err
		}
		if token == "" && !answer.Synced {
			fmt.Fprintf(g.stderr, "source %s is not complete yet: %s\n", answer.Source, answer.Reason)
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
		fmt.Fprintf(g.stderr, "%d objects lack a field that the filter needs, so they do not match: write has(), or .? with orValue()\n", absent)
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
	switch p.output {
	case "json":
		return p.printJSON(item)
	case "yaml":
		if p.n > 1 {
			fmt.Fprintln(p.stdout, "---")
		}
		return p.yaml(item)
	case "name":
		key := m.Name
		if m.Namespace != "" {
			key = m.Namespace + "/" + m.Name
		}
		fmt.Fprintln(p.stdout, key)
		return nil
	}
	if p.n == 1 {
		fmt.Fprintf(p.table, "NAMESPACE\tNAME\tAGE\tVERSION\n")
	}
	born := "-"
	if !m.CreationTimestamp.IsZero() {
		born = age(time.Since(m.CreationTimestamp))
	}
	fmt.Fprintf(p.table, "%s\t%s\t%s\t%s\n", dash(m.Namespace), m.Name, born, dash(m.ResourceVersion))
	return nil
}

// printJSON prints one object as it is, and several as a list that kubectl understands.
func (p *printer) printJSON(item json.RawMessage) error {
	if p.named {
		return p.json(item)
	}
	opening := ",\n"
	if p.n == 1 {
		opening = `{"apiVersion": "v1", "kind": "List", "items": [` + "\n"
	}
	_, err := fmt.Fprintf(p.stdout, "%s%s", opening, item)
	return err
}

// end finishes what was begun. It is an error if one object was meant and there is none.
func (p *printer) end(answer api.Answer) error {
	if p.n == 0 && p.named {
		return fmt.Errorf("source %s has no object %q", answer.Source, strings.TrimPrefix(p.query.Namespace+"/"+p.query.Name, "/"))
	}
	switch {
	case p.output == "json" && p.n == 0:
		fmt.Fprintf(p.stdout, `{"apiVersion": "v1", "kind": "List", "items": [], "metadata": {"resourceVersion": %q}}`+"\n", answer.ResourceVersion)
	case p.output == "json" && !p.named:
		fmt.Fprintf(p.stdout, "\n], \"metadata\": {\"resourceVersion\": %q}}\n", answer.ResourceVersion)
	case p.output == "table" && p.n == 0:
		fmt.Fprintln(p.stderr, "No objects.")
	}
	return p.table.Flush()
}

// yaml prints a value, or the JSON of one, as YAML.
func (r *remote) yaml(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if text, err = config.ObjectYAML(text); err == nil {
		_, err = r.stdout.Write(text)
	}
	return err
}
