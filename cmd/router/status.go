package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

// statusCommand shows the state of the running router.
func statusCommand() cli.Command {
	return cli.Command{
		Name:    "status",
		Summary: "Show the failing checks and the backlog of the running router",
		Description: `
It shows how many deltas are pending at each route, the digest of the program of each handler, and each check that
fails, with the reason. It exits with 1 if the router is not ready.`,
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
	fmt.Fprintln(w, "ROUTE\tPENDING\tON DISK\tDEAD LETTERS")
	for i := range s.Routes {
		route := &s.Routes[i]
		cli.Printf(w, "%s\t%d\t%d\t%d\n", route.Name, route.Pending, route.OnDisk, route.DeadLetters)
	}
	if err := w.Flush(); err != nil {
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
	if err := printNamespaces(r, s.Sources); err != nil {
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
