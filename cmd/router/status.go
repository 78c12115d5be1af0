package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

const statusUsage = `Usage:
  router status     what in the running router is not well, and why, and how many deltas are pending at each route, which content handlers run

Flags:
  -config FILE   the running router's configuration, to find listen.api
  -api ADDR      listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
  -o FORMAT      table or json (default table)

It exits with 1 if the router is not ready.
`

// showStatus asks the running router how it is.
func showStatus(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := &cli.Remote{Stdout: stdout, Stderr: stderr}
	flags := newFlags("router status", io.Discard)
	r.AddFlags(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) || err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, statusUsage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil:
		err = r.Connect()
	}
	if err != nil {
		cli.Printf(stderr, "router status: %v\n", err)
		return exitUsage
	}
	status, err := r.Client.Status(ctx)
	if err == nil && r.Output == "json" {
		err = r.PrintJSON(status)
	} else if err == nil {
		err = printStatus(r, &status)
	}
	if err != nil {
		cli.Printf(stderr, "router status: %v\n", err)
		return exitFailed
	}
	if !status.Ready {
		return exitFailed
	}
	return exitOK
}

func printStatus(r *cli.Remote, s *api.Status) error {
	w := tabwriter.NewWriter(r.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROUTE\tOWED\tON DISK\tDEAD LETTERS")
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
	fmt.Fprintln(r.Stdout)
	for _, c := range s.Checks {
		if !c.OK {
			cli.Printf(r.Stdout, "%s: %s\n", c.Name, c.Message)
		}
	}
	if s.Ready {
		fmt.Fprintln(r.Stdout, "ready")
	} else {
		fmt.Fprintln(r.Stdout, "not ready")
	}
	return nil
}
