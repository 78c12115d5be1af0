package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
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
  -dry-run        with -route: say how much it would get, and give it nothing
  -yes            do not ask before a route with a condition (when) tells once more what holds
  -o FORMAT       table or json (default table)
`

// resyncAll asks the running router to put everything through once more.
func resync(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := &cli.Remote{Stdout: stdout, Stderr: stderr}
	var ask api.Resync
	flags := newFlags("router resync", io.Discard)
	r.AddFlags(flags)
	flags.StringVar(&ask.Source, "source", "", "")
	flags.StringVar(&ask.Route, "route", "", "")
	flags.BoolVar(&ask.Relist, "relist", false, "")
	flags.BoolVar(&ask.DryRun, "dry-run", false, "")
	yes := flags.Bool("yes", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) || err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, resyncUsage)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: name a source with -source, a route with -route", flags.Arg(0))
	case err == nil && ask.DryRun && (ask.Route == "" || ask.Relist):
		err = errors.New("-dry-run is for -route R without -relist")
	case err == nil:
		err = r.Connect()
	}
	if err != nil {
		cli.Printf(stderr, "router resync: %v\n", err)
		return exitUsage
	}
	err = nil
	if ask.Route != "" && !ask.Relist && !ask.DryRun && !*yes {
		err = confirmRepeats(ctx, r, ask, os.Stdin)
	}
	if err == nil {
		err = resyncAll(ctx, r, ask)
	}
	if err != nil {
		cli.Printf(stderr, "router resync: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// confirmRepeats asks whoever sits there, if the route would tell once more what it has told. The
// error says that nothing was done.
func confirmRepeats(ctx context.Context, r *cli.Remote, ask api.Resync, answers io.Reader) error {
	ask.DryRun = true
	would, err := r.Client.Resync(ctx, ask)
	n := 0
	for _, s := range would.Sources {
		n += s.Taken
	}
	if err != nil || !would.Repeats || n == 0 {
		return err
	}
	cli.Printf(r.Stderr, "Route %s has a condition, and would repeat %s. Go on? [y/N] ", ask.Route, cli.Count(n, "notification"))
	// the end without a word is no
	answer, _ := bufio.NewReader(io.LimitReader(answers, 100)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done: answer y, or give -yes")
}

// resyncAll asks, and says what came of it. It is an error if a source was not put through.
func resyncAll(ctx context.Context, r *cli.Remote, ask api.Resync) error {
	done, err := r.Client.Resync(ctx, ask)
	if err != nil {
		return err
	}
	if r.Output == "json" {
		err = r.PrintJSON(done)
	} else if ask.DryRun && done.Repeats {
		cli.Printf(r.Stdout, "route %s has a condition: it would repeat notifications\n", ask.Route)
	}
	failed := 0
	for _, s := range done.Sources {
		if r.Output != "json" {
			cli.Printf(r.Stdout, "source %s: %s\n", s.Name, outcomeOf(s, ask))
		}
		switch {
		case s.Error != "":
			failed++
			cli.Printf(r.Stderr, "source %s: %s\n", s.Name, s.Error)
		case s.Unsynced != "" && !ask.Relist:
			cli.Printf(r.Stderr, "source %s is not complete yet: %s\n", s.Name, s.Unsynced)
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
		return fmt.Sprintf("%s listed, %s of what differs", cli.Count(s.Objects, "object"), cli.Count(s.Deltas, "delta"))
	case ask.DryRun:
		return fmt.Sprintf("%s would be put through, %d of them would go to route %s", cli.Count(s.Objects, "object"), s.Taken, ask.Route)
	case ask.Route != "":
		return fmt.Sprintf("%s put through, %d of them to route %s", cli.Count(s.Objects, "object"), s.Taken, ask.Route)
	}
	return fmt.Sprintf("%s put through, %d of them to a route", cli.Count(s.Objects, "object"), s.Taken)
}
