package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/deltarouter/deltarouter/pkg/api"
)

const resyncUsage = `Usage:
  router resync [-source S] [-route R]       puts everything that the cache holds through once more, as sync
  router resync -relist [-source S]          lists anew, and puts through what differs from the cache

Without -route the routes whose on has sync get it. With it that route does, whatever its on is: its filter decides.
After etcd was restored from a backup, -relist finds what no watch tells.

Flags:
  -config FILE    the running router's configuration, to find listen.api
  -api ADDR       listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
  -source SOURCE  only this source
  -route ROUTE    only this route, and only the sources that it has
  -relist         ask the API server, not the cache; what differs goes to all routes of the sources
  -o FORMAT       table or json (default table)
`

// resync asks the running router to put everything through once more.
func resync(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := &remote{stdout: stdout, stderr: stderr}
	var ask api.Resync
	flags := newFlags("router resync", io.Discard)
	r.flags(flags)
	flags.StringVar(&ask.Source, "source", "", "")
	flags.StringVar(&ask.Route, "route", "", "")
	flags.BoolVar(&ask.Relist, "relist", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) || err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, resyncUsage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: name a source with -source, a route with -route", flags.Arg(0))
	case err == nil:
		err = r.connect()
	}
	if err != nil {
		fmt.Fprintf(stderr, "router resync: %v\n", err)
		return exitUsage
	}
	if err := r.resync(ctx, ask); err != nil {
		fmt.Fprintf(stderr, "router resync: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// resync asks, and says what came of it. It is an error if a source was not put through.
func (r *remote) resync(ctx context.Context, ask api.Resync) error {
	done, err := r.client.Resync(ctx, ask)
	if err != nil {
		return err
	}
	if r.output == "json" {
		err = r.json(done)
	}
	failed := 0
	for _, s := range done.Sources {
		if r.output != "json" {
			fmt.Fprintf(r.stdout, "source %s: %s\n", s.Name, outcomeOf(s, ask))
		}
		switch {
		case s.Error != "":
			failed++
			fmt.Fprintf(r.stderr, "source %s: %s\n", s.Name, s.Error)
		case s.Unsynced != "" && !ask.Relist:
			fmt.Fprintf(r.stderr, "source %s is not complete yet: %s\n", s.Name, s.Unsynced)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d sources were not put through to the end", failed, len(done.Sources))
	}
	return err
}

func outcomeOf(s api.ResyncedSource, ask api.Resync) string {
	switch {
	case ask.Relist && s.Error != "":
		return "not listed"
	case ask.Relist:
		return fmt.Sprintf("%d objects listed, %d deltas of what differs", s.Objects, s.Deltas)
	case ask.Route != "":
		return fmt.Sprintf("%d objects put through, %d go to route %s", s.Objects, s.Taken, ask.Route)
	}
	return fmt.Sprintf("%d objects put through, %d go to a route", s.Objects, s.Taken)
}
