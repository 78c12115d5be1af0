package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
)

// actives shows for which objects the condition of a route holds, page after page.
func (g *get) actives(ctx context.Context) error {
	table := tabwriter.NewWriter(g.Out, 0, 0, 2, ' ', 0)
	n := 0
	for token := ""; ; {
		answer, err := g.Client.Active(ctx, api.ActiveQuery{Route: g.active, Limit: getPage}, token)
		if err != nil {
			return err
		}
		for i := range answer.Items {
			if err := g.printActive(table, &answer.Items[i], n); err != nil {
				return err
			}
			n++
		}
		if token = answer.Continue; token == "" {
			break
		}
	}
	switch {
	case g.Output == "json" && n == 0:
		fmt.Fprintln(g.Out, "[]")
	case g.Output == "json":
		fmt.Fprintln(g.Out, "\n]")
	case n == 0 && (g.Output == "table" || g.Output == "wide"):
		fmt.Fprintln(g.Err, "It holds for no object.")
	}
	return table.Flush()
}

// printActive prints the object of number n.
func (g *get) printActive(table *tabwriter.Writer, a *api.Active, n int) error {
	switch g.Output {
	case "json":
		opening := ",\n"
		if n == 0 {
			opening = "[\n"
		}
		text, err := json.Marshal(a)
		fmt.Fprintf(g.Out, "%s%s", opening, text)
		return err
	case "yaml":
		return g.PrintYAML([]*api.Active{a}) // lists, one behind the other, are one list
	case "name":
		cli.Printf(g.Out, "%s\n", strings.TrimPrefix(a.Namespace+"/"+a.Name, "/"))
		return nil
	}
	if n == 0 {
		fmt.Fprintln(table, "SOURCE\tNAMESPACE\tNAME\tSTATE\tSINCE\tDUE\tREMINDER\tREPEATS")
	}
	cli.Printf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n",
		a.Source, dash(a.Namespace), a.Name, a.State, age(time.Since(a.Since)), inTime(a.Due), inTime(a.Remind), a.Repeats)
	return nil
}

// inTime says how long it is until a time.
func inTime(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return "in " + age(max(0, time.Until(at)))
}
