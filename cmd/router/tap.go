package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
	"github.com/deltarouter/deltarouter/internal/printable"
)

const tapUsage = `Usage:
  router tap [-route R] [-rejected]     shows what goes by in the running router, and what the routes make of it, until it is interrupted

At most 50 changes a second are shown; what goes by faster is counted. Nothing of the objects is shown but who they are,
and of a route with a rule about time since when it holds, or the object is gone, and when that is told.

Flags:
  -config FILE   the running router's configuration, to find listen.api
  -api ADDR      listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
  -route ROUTE   only this route
  -rejected      also what routes do not want, with the first condition that is not met
  -o FORMAT      text or json, a line each (default text)
`

// tap shows what goes by in the running router.
func tap(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := &cli.Remote{Stdout: stdout, Stderr: stderr, Formats: []string{"text", "json"}}
	var q api.TapQuery
	flags := newFlags("router tap", io.Discard)
	r.AddFlags(flags)
	r.Output = "text"
	flags.StringVar(&q.Route, "route", "", "")
	flags.BoolVar(&q.Rejected, "rejected", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) || err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, tapUsage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: name a route with -route", flags.Arg(0))
	case err == nil:
		err = r.Connect()
	}
	if err != nil {
		cli.Printf(stderr, "router tap: %v\n", err)
		return exitUsage
	}
	if err := r.Client.Tap(ctx, q, func(t api.Tapped) error { return showTapped(r, t) }); err != nil && ctx.Err() == nil {
		cli.Printf(stderr, "router tap: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// showTapped prints one line.
func showTapped(r *cli.Remote, t api.Tapped) error {
	if r.Output == "json" {
		return json.NewEncoder(r.Stdout).Encode(t)
	}
	if t.Missed > 0 {
		cli.Printf(r.Stdout, "… %d more\n", t.Missed)
	}
	line := fmt.Sprintf("%s %s %s %s", t.Time.Local().Format("15:04:05.000"), t.Op, t.Source, t.Key)
	if t.Event != "" {
		line += " (" + t.Event + ")"
	}
	line += fmt.Sprintf("  %s: %s", t.Route, t.Verdict)
	if t.Why != "" {
		line += ": " + short(t.Why)
	}
	if t.At != "" {
		line += "  (" + t.At + ")"
	}
	if t.Reason != "" {
		line += ": " + t.Reason
	}
	if t.State != "" {
		line += ", " + t.State + " since " + clock(t.Since, t.Time)
	}
	if !t.Due.IsZero() {
		line += ", due at " + clock(t.Due, t.Time)
	}
	_, err := fmt.Fprintln(r.Stdout, printable.Line(line))
	return err
}

// clock writes a time, with its day if that is not the day of now.
func clock(at, now time.Time) string {
	if at, now = at.Local(), now.Local(); at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
