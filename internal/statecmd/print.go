package statecmd

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// nameSources adds the names of the sources to the watches of a report.
func (c *selection) nameSources(r *Report) error {
	if c.cfg == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Sources)) {
		specs, err := informer.SpecsOf(c.cfg.Sources[name])
		if err != nil {
			return cli.Invalid(fmt.Errorf("source %q: %w", name, err))
		}
		for _, spec := range specs {
			of, _ := spec.Namespaces()
			for i := range r.Watches {
				switch w := &r.Watches[i]; w.ID {
				case spec.ID():
					w.Sources = append(w.Sources, name)
				case of.ID():
					w.Sources = append(w.Sources, name+" (namespaces)")
				}
			}
		}
	}
	return nil
}

// printReport prints a report as tables.
func printReport(out io.Writer, r *Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	cli.Printf(w, "file\t%s\n", r.File)
	cli.Printf(w, "format\t%d (this version reads %d to %d)\n", r.Format, r.Reads[0], r.Reads[1])
	cli.Printf(w, "size\t%d bytes, of which %d are free\n", r.Size, r.Free)
	cli.Printf(w, "last write\t%s, %s ago\n", r.Written.UTC().Format(time.RFC3339), printable.Duration(time.Since(r.Written)))
	cli.Printf(w, "cluster\t%s\n", dash(r.Cluster))
	if r.FellBack {
		fmt.Fprintln(w, "damage\tthe last transaction is unreadable; this is the state before it")
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWATCH\tKIND\tOBJECTS\tINTENTS\tRESOURCE VERSION")
	for i := range r.Watches {
		watch := &r.Watches[i]
		position := dash(watch.ResourceVersion)
		if watch.Relisting {
			position += ", in a relist"
		}
		cli.Printf(w, "%s\t%s\t%d\t%d\t%s\n", cmp.Or(strings.Join(watch.Sources, ","), watch.ID), dash(watch.Kind), watch.Objects, watch.Intents, position)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nROUTE\tPENDING\tBYTES\tDEAD LETTERS\tCONDITIONS\tHELD DELETES\tLIMIT KEYS\tSTATE")
	for i := range r.Routes {
		route := &r.Routes[i]
		cli.Printf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", route.ID, route.Pending, route.Bytes, route.DeadLetters,
			route.Conditions, route.HeldDeletes, route.LimitKeys, stateOf(route))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nKV\tKEYS\tBYTES\tSTATE")
	for _, h := range r.Handlers {
		cli.Printf(w, "%s\t%d\t%d\t%s\n", h.Name, h.Keys, h.Bytes, removed(h.Removed))
	}
	if r.History != nil {
		r.History.printTo(w)
	}
	return w.Flush()
}

func stateOf(r *routeReport) string {
	if r.Paused {
		return "paused"
	}
	return removed(r.Removed)
}

// removed describes whether a part is still configured.
func removed(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return "removed " + at.Format(time.RFC3339)
}

func dash(s string) string { return cmp.Or(s, "-") }
