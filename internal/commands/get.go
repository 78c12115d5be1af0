package commands

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/listing"
)

// getCommand shows the cache of the running router.
func getCommand() cli.Command {
	return cli.Command{
		Name:    "get",
		Args:    "[SOURCE[/NAME] [NAME]]",
		Summary: "Show the sources of the running router, or objects of its cache",
		Description: `
Without SOURCE it lists the sources. SOURCE is the name of a source, or the resource that one watches, as kubectl takes
it: deployments, deploy or deployments.apps. NAME is NAME or NAMESPACE/NAME; it exits with 1 if there is no such object.
The values in Secrets are never shown.

-active ROUTE lists the objects for which the condition of a route (when) holds, or, for a route with a delete hold,
the deleted objects: since when, and when that is reported.

-w prints the objects, and then a row for each one that is added, changes or is deleted, until it is interrupted. An
object that no longer matches counts as deleted. A deleted object is printed in its last state; -output-watch-events
shows the type of each change. Each object is a document of its own, also with -o json. A -filter that looks up other
objects is evaluated when the object itself changes. A reload of the configuration ends the watch with an error.

-at TIME prints the objects as they were at a time, from the history, also those that are deleted since; with -diff TIME
it prints which objects were added, deleted or changed between two times.`,
		Examples: []cli.Example{
			{Line: "router get", Text: "the sources, with the number of their objects and their indexes"},
			{Line: "router get pods shop/web-0 -o yaml", Text: "one object"},
			{Line: "router get deploy/web -n shop -o jsonpath={.spec.replicas}", Text: "a field of one object"},
			{Line: "router get pods -l app=web -o wide", Text: "the objects with a label; with uid, controller and labels"},
			{Line: "router get pods -index byNode=n1", Text: "the objects that an index of the source has under a value"},
			{Line: `router get pods -filter 'object.status.phase == "Failed"'`, Text: "the objects that match, as with the filter of a route"},
			{Line: "router get pods -w -output-watch-events", Text: "the objects, and then each change, until it is interrupted"},
			{Line: "router get pods -n shop -at 2h", Text: "the objects as they were two hours ago"},
			{Line: "router get pods -n shop -at 2h -diff 1h", Text: "the differences between two times"},
			{Line: "router get -active alerts", Text: "the objects for which the condition of a route holds"},
			{Line: "router get pods -in ops/deltarouter-0", Text: "the cache of a router in a cluster, through the API server of the kubeconfig"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			g := &get{}
			g.AddAddress(f)
			f.StringVar(&g.Output, "o", "table", "`"+strings.Join(listing.Formats(), "|")+"|jsonpath=TEMPLATE` the format of the output")
			f.StringVar(&g.index, "index", "", "`INDEX=VALUE` one of the source's indexes, or name, namespace or owner (a uid)")
			f.StringVar(&g.query.Namespace, "n", "", "`NAMESPACE` only this namespace")
			f.BoolVar(&g.all, "A", false, "all namespaces, as without -n")
			f.StringVar(&g.query.Labels, "l", "", "`SELECTOR` only objects with these labels, as in app=web,tier!=db")
			f.StringVar(&g.query.Filter, "filter", "", "`EXPRESSION` CEL; an object that lacks a field which it needs does not match")
			f.BoolVar(&g.watch, "w", false, "print the objects, then each change, until it is interrupted")
			f.BoolVar(&g.watchOnly, "watch-only", false, "print each change only, until it is interrupted")
			f.BoolVar(&g.events, "output-watch-events", false, "with -w: also print the type of each change: ADDED, MODIFIED or DELETED")
			f.StringVar(&g.active, "active", "", "`ROUTE` the objects for which the condition of this route holds")
			f.StringVar(&g.past.at, "at", "", "`TIME` the objects as they were then: how long ago, as in 2h or 7d, or a time, as in 2006-01-02T15:04:05Z")
			f.StringVar(&g.past.diff, "diff", "", "`TIME` with -at: the differences to another time, in the same form")
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
	all    bool   // -A
	named  bool   // by NAME: one object is meant
	active string // the route that is asked about; empty: none is

	past      past
	watch     bool // -w
	watchOnly bool // -watch-only
	events    bool // -output-watch-events
}

// run shows sources, objects, or the objects of a condition.
func (g *get) run(ctx context.Context, s cli.Streams, args []string) error {
	g.Streams = s
	if err := g.parse(args); err != nil {
		return err
	}
	if err := g.Connect(ctx); err != nil {
		return err
	}
	switch {
	case g.active != "":
		return g.actives(ctx)
	case g.query.Source == "":
		return g.sources(ctx)
	case g.past.at != "":
		return g.then(ctx)
	case g.watching():
		if err := g.follow(ctx); ctx.Err() == nil {
			return err
		}
		return nil // the interrupt is the normal end
	}
	return g.objects(ctx)
}

// check refuses flags and arguments that do not go together.
func (g *get) check(names []string) error {
	selects := g.watching() || g.index != "" || g.query.Filter != "" || g.query.Labels != "" || g.query.Namespace != ""
	switch {
	case g.all && g.query.Namespace != "":
		return cli.Mistakef("-A is all namespaces, -n one: leave one of them out")
	case g.active != "" && (len(names) > 0 || selects):
		return cli.Mistakef("-active ROUTE stands alone: all objects of the route are shown")
	case g.events && !g.watching():
		return cli.Mistakef("-output-watch-events needs -w or -watch-only")
	case len(names) > 2:
		return cli.Mistakef("unexpected argument %q: one source and one name", names[2])
	case len(names) == 0 && selects:
		return cli.Mistakef("name the source: router get SOURCE …")
	case len(names) == 0 && strings.HasPrefix(g.Output, "jsonpath"):
		return cli.Mistakef("-o jsonpath is for objects: name a source, or use -o json")
	}
	return g.checkPast(names)
}

// parse reads the arguments.
func (g *get) parse(names []string) error {
	if err := g.check(names); err != nil {
		return err
	}
	if err := listing.Check(g.Output); err != nil {
		return cli.Mistakef("-o: %s", err.Error())
	}
	if len(names) > 0 {
		if err := g.address(names); err != nil {
			return err
		}
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

// address reads SOURCE, SOURCE/NAME, or SOURCE and NAME.
func (g *get) address(names []string) error {
	source, name, joined := strings.Cut(names[0], "/")
	switch {
	case joined && len(names) > 1:
		return cli.Mistakef("unexpected argument %q: %s names the object", names[1], names[0])
	case !joined && len(names) > 1:
		name, joined = names[1], true
	}
	g.query.Source, g.named = source, joined
	if joined {
		g.name(name)
	}
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
	g.SayStandby()
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
		if s.NamespaceSelector != "" {
			namespaces = s.NamespaceSelector
		}
		if s.Selected != nil {
			namespaces = fmt.Sprintf("%d with %s", *s.Selected, s.NamespaceSelector)
		}
		objects := strconv.Itoa(s.Objects)
		if s.Hidden {
			objects = "-"
		}
		cli.Printf(w, "%s\t%s\t%s\t%s\t%t\t%s\n", s.Name, s.Resource, namespaces, objects, s.Synced, strings.Join(s.Indexes, ","))
	}
	return w.Flush()
}

// objects asks for page after page, and prints each as it comes.
func (g *get) objects(ctx context.Context) error {
	if err := g.resolve(ctx); err != nil {
		return err
	}
	p, err := listing.New(g.Out, g.Output, g.named)
	if err != nil {
		return err
	}
	token, absent := "", 0
	var answer api.Answer
	for {
		if answer, err = g.Client.Query(ctx, g.query, token); err != nil {
			return err
		}
		if token == "" && !answer.Synced {
			g.warnIncomplete(answer.Reason)
		}
		if token == "" && len(answer.Kept) > 0 {
			cli.Printf(g.Err, "the cache keeps only names, versions and these fields (cache: auto): %s\n", strings.Join(answer.Kept, ", "))
		}
		absent += answer.Absent
		for _, item := range answer.Items {
			if err := p.Print(item); err != nil {
				return err
			}
		}
		if token = answer.Continue; token == "" {
			break
		}
	}
	g.SayStandby()
	g.warnAbsent(absent)
	switch {
	case p.Len() == 0 && g.named:
		return g.missing()
	case p.Len() == 0 && (g.Output == "table" || g.Output == "wide"):
		fmt.Fprintln(g.Err, "No objects.")
	}
	return p.End(answer.ResourceVersion)
}

func (g *get) warnAbsent(n int) {
	if n > 0 {
		cli.Printf(g.Err, "%s without a field that the filter needs, which is no match: write has(), or .? with orValue()\n", cli.Count(n, "object"))
	}
}

func (g *get) warnIncomplete(reason string) {
	cli.Printf(g.Err, "source %s is not complete yet: %s\n", g.query.Source, reason)
}

func (g *get) missing() error {
	return fmt.Errorf("source %s has no object %q", g.query.Source, strings.TrimPrefix(g.query.Namespace+"/"+g.query.Name, "/"))
}

func (g *get) watching() bool { return g.watch || g.watchOnly }

// follow prints the objects and their changes until ctx is done.
func (g *get) follow(ctx context.Context) error {
	if err := g.resolve(ctx); err != nil {
		return err
	}
	p, err := listing.NewStream(g.Out, g.Output, g.events)
	if err != nil {
		return err
	}
	listed := false
	return g.Client.Watch(ctx, g.query, func(e api.WatchEvent) error {
		switch {
		case e.Type == api.WatchListed:
			listed = true
			if !e.Synced {
				g.warnIncomplete(e.Reason)
			}
			g.warnAbsent(e.Absent)
			if g.named && !g.watchOnly && p.Len() == 0 {
				return g.missing()
			}
		case g.watchOnly && !listed:
			return nil
		default:
			if err := p.Print(e.Type, e.Object); err != nil {
				return err
			}
		}
		if !listed { // the widths of the columns are those of all listed objects
			return nil
		}
		return p.Flush()
	})
}

// resolve replaces the resource that names a source by the name of the source.
func (g *get) resolve(ctx context.Context) error {
	sources, err := g.Client.Sources(ctx)
	if err != nil {
		return err
	}
	name, err := listing.Source(g.query.Source, sources)
	if err != nil {
		return cli.Mistakef("%s", err.Error())
	}
	g.query.Source = name
	return nil
}
