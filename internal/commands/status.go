package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/plugincmd"
)

// statusCommand shows the state of the running router.
func statusCommand() cli.Command {
	return cli.Command{
		Name:    "status",
		Summary: "Show the failing checks and the backlog of the running router",
		Description: `
It shows how many deltas are pending at each route and the memory that they take, what became of its deltas since a
time, the digest of the program of each handler, the members of the fleet, and each check that fails, with the reason.
It exits with 1 if the router is not ready.

The counts survive restarts with a state folder; after a crash they may lack the last second. MATCHED has all others and
the pending deltas; FAILED counts failures of filters, the handler and sinks, also those that were tried again.`,
		Examples: []cli.Example{
			{Line: "router status", Text: "the router of config.yaml"},
			{Line: "router status -in ops/deltarouter-0", Text: "the router in a pod of a cluster, with the kubeconfig of kubectl"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			r.AddFlags(f)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				r.Streams = s
				return showStatus(ctx, r)
			}
		},
	}
}

func showStatus(ctx context.Context, r *cli.Remote) error {
	if err := r.Connect(ctx); err != nil {
		return err
	}
	status, err := r.Client.Status(ctx)
	if err == nil && r.Output == "json" {
		err = r.PrintJSON(status)
	} else if err == nil {
		err = printStatus(r, &status)
	}
	if err == nil && !status.Ready {
		err = cli.Exit(cli.CodeFailed)
	}
	return err
}

func printStatus(r *cli.Remote, s *api.Status) error {
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROUTE\tPENDING\tIN MEMORY\tON DISK\tDEAD LETTERS")
	for i := range s.Routes {
		route := &s.Routes[i]
		name := route.Name
		if route.Shadow {
			name += " (shadow)"
		}
		cli.Printf(w, "%s\t%d\t%s\t%d\t%s\n", name, route.Pending, inMemory(route), route.OnDisk, letters(route))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printCounts(r.Out, s.Routes); err != nil {
		return err
	}
	if len(s.Handlers) > 0 {
		fmt.Fprintln(w, "\nHANDLER\tKIND\tSHA256")
	}
	for _, h := range s.Handlers {
		cli.Printf(w, "%s\t%s\t%s\n", h.Name, h.Kind, dash(h.SHA256))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printWorkers(r, s.Routes); err != nil {
		return err
	}
	if err := printNamespaces(r, s.Sources); err != nil {
		return err
	}
	if err := printObjects(r.Out, s.Objects); err != nil {
		return err
	}
	if err := printFleet(r.Out, s.Fleet); err != nil {
		return err
	}
	fmt.Fprintln(r.Out)
	for _, c := range s.Checks {
		if !c.OK {
			cli.Printf(r.Out, "%s: %s\n", c.Name, c.Message)
		}
	}
	if s.Ready {
		fmt.Fprintln(r.Out, "ready")
	} else {
		fmt.Fprintln(r.Out, "not ready")
	}
	return nil
}

// printCounts prints the counts of the routes, which survive restarts.
func printCounts(out io.Writer, routes []api.RouteStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	begun := false
	for i := range routes {
		n := routes[i].Counts
		if n == nil {
			continue
		}
		if !begun {
			fmt.Fprintln(w, "\nROUTE\tMATCHED\tDELIVERED\tHELD BACK\tCOALESCED\tDROPPED\tFAILED\tDEAD-LETTERED\tSHADOWED\tSINCE")
		}
		begun = true
		cli.Printf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", routes[i].Name, n.Matched, n.Delivered, n.HeldBack, n.Coalesced, n.Dropped, n.Failed,
			n.DeadLettered, n.Shadowed, n.Since.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

// inMemory returns the memory that the pending deltas of a route take. A worker does not know it.
func inMemory(route *api.RouteStatus) string {
	if route.Bytes == 0 && route.Pending > route.OnDisk {
		return "-"
	}
	return plugincmd.Size(float64(route.Bytes))
}

// letters returns the number of the dead letters of a route, and of those that are lost.
func letters(route *api.RouteStatus) string {
	if route.EvictedLetters == 0 {
		return strconv.Itoa(route.DeadLetters)
	}
	return fmt.Sprintf("%d (%d evicted)", route.DeadLetters, route.EvictedLetters)
}

// printNamespaces prints the sources that select namespaces.
func printNamespaces(r *cli.Remote, sources []api.SourceStatus) error {
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	begun := false
	for i := range sources {
		s := &sources[i]
		if s.Namespaces == nil {
			continue
		}
		if !begun {
			fmt.Fprintln(w, "\nSOURCE\tSELECTED NAMESPACES")
		}
		begun = true
		cli.Printf(w, "%s\t%d\n", s.Name, *s.Namespaces)
	}
	return w.Flush()
}

// printObjects prints the namespaces whose objects are read for routes.
func printObjects(out io.Writer, all []api.ObjectsStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(all) > 0 {
		fmt.Fprintln(w, "\nOBJECTS\tGRANTED NAMESPACES\tOTHERS")
	}
	for _, o := range all {
		key := "customResources." + strings.ToLower(o.Kind[:1]) + o.Kind[1:] + "s"
		switch {
		case len(o.Namespaces) == 0:
			cli.Printf(w, "%s\tnone\tignored: %s grants them\n", o.Kind, key)
		case slices.Contains(o.Namespaces, "*"):
			cli.Printf(w, "%s\tall\t-\n", o.Kind)
		default:
			cli.Printf(w, "%s\t%s\tignored: %s.namespaces grants them\n", o.Kind, strings.Join(o.Namespaces, ", "), key)
		}
	}
	return w.Flush()
}

// promoteTimeout bounds the wait for the end of a promotion.
const promoteTimeout = 2 * time.Minute

// promoteCommand makes a standby of a fleet the leader.
func promoteCommand() cli.Command {
	return cli.Command{
		Name:    "promote",
		Summary: "Make a standby of a fleet the leader",
		Description: `
The command is for the standby that is to lead, so name its address or pod. It asks the present leader to hand over,
and waits until the standby leads. The leader ends its deliveries, publishes its last checkpoint and becomes a standby:
nothing is lost and nothing is delivered twice. It waits while NATS lacks checkpoints of the leader.`,
		Examples: []cli.Example{{Line: "router promote -in ops/deltarouter-1", Text: "make the router in this pod the leader"}},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			r.AddAddress(f)
			return func(ctx context.Context, s cli.Streams, args []string) error {
				if len(args) > 0 {
					return cli.Mistakef("unexpected argument %q", args[0])
				}
				if err := r.Connect(ctx); err != nil {
					return err
				}
				return promote(ctx, s, r.Client)
			}
		},
	}
}

func promote(ctx context.Context, s cli.Streams, client *api.Client) error {
	if err := client.Promote(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, promoteTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// The API of the router is closed for a moment in between.
		if status, err := client.Status(ctx); err == nil && status.Fleet != nil && status.Fleet.Role == "leader" {
			cli.Printf(s.Out, "%s leads\n", status.Fleet.Member)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the leader was asked, and has not handed over yet: router status of the leader may show why")
		}
	}
}

// printFleet prints the members of the fleet.
func printFleet(out io.Writer, f *api.FleetStatus) error {
	if f == nil {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nMEMBER\tROLE\tBEHIND\tSINCE\tVERSION\tCONFIG")
	for i := range f.Members {
		m := &f.Members[i]
		name, behind, since := m.Name, "-", "-"
		if m.Name == f.Member {
			name += " *" // this process
		}
		if m.Behind != nil {
			behind = fmt.Sprintf("%.1fs", *m.Behind)
		}
		if !m.Since.IsZero() {
			since = m.Since.UTC().Format(time.RFC3339)
		}
		config := m.Config
		if len(config) > 12 {
			config = config[:12]
		}
		cli.Printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, m.Role, behind, since, dash(m.Version), dash(config))
	}
	if f.Unsigned {
		cli.Printf(w, "There are no fleet.keys: this process trusts all that it finds in NATS.\n")
	}
	return w.Flush()
}

// printWorkers prints the routes whose deltas go to the workers of the fleet.
func printWorkers(r *cli.Remote, routes []api.RouteStatus) error {
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	begun := false
	for i := range routes {
		of := routes[i].Workers
		if of == nil {
			continue
		}
		if !begun {
			fmt.Fprintln(w, "\nROUTE\tPARTITIONS\tWAIT FOR WORKERS")
		}
		begun = true
		waiting := "unknown"
		if of.Waiting != nil {
			waiting = fmt.Sprint(*of.Waiting)
		}
		cli.Printf(w, "%s\t%d\t%s\n", routes[i].Name, of.Partitions, waiting)
	}
	return w.Flush()
}
