package commands

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
)

// resyncCommand repeats cached objects, or lists sources again.
func resyncCommand() cli.Command {
	return cli.Command{
		Name:    "resync",
		Summary: "Repeat the cached objects to the routes, or list the sources again",
		Description: `
Without -relist the routes get each cached object as op sync. Without -route that are the routes whose ops have sync;
with it, that route, whatever its ops are: its filter decides.

With -relist the router lists the sources again, and all routes of the sources get the differences from the cache.
After etcd was restored from a backup, this finds changes that no watch reports.`,
		Examples: []cli.Example{
			{Line: "router resync -source pods", Text: "repeat the objects of one source"},
			{Line: "router resync -route inventory -dry-run", Text: "say how many deltas the route would get"},
			{Line: "router resync -relist", Text: "list all sources again"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			var ask api.Resync
			r.AddFlags(f)
			f.StringVar(&ask.Source, "source", "", "`SOURCE` only this source")
			f.StringVar(&ask.Route, "route", "", "`ROUTE` only this route, and only the sources that it has")
			f.BoolVar(&ask.Relist, "relist", false, "compare with the API server instead of repeating the cache")
			f.BoolVar(&ask.DryRun, "dry-run", false, "with -route: say how many deltas the route would get, and do nothing")
			yes := f.Bool("yes", false, "do not ask before a route with a condition (when) repeats its reports")
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				r.Streams = s
				return resync(ctx, r, ask, *yes)
			}
		},
	}
}

func resync(ctx context.Context, r *cli.Remote, ask api.Resync, yes bool) error {
	if ask.DryRun && (ask.Route == "" || ask.Relist) {
		return cli.Mistakef("-dry-run is for -route ROUTE without -relist")
	}
	if err := r.Connect(ctx); err != nil {
		return err
	}
	if ask.Route != "" && !ask.Relist && !ask.DryRun && !yes {
		if err := confirmRepeats(ctx, r, ask); err != nil {
			return err
		}
	}
	return resyncAll(ctx, r, ask)
}

// confirmRepeats asks the user before a route repeats reports of its condition. The error says that
// nothing was done.
func confirmRepeats(ctx context.Context, r *cli.Remote, ask api.Resync) error {
	ask.DryRun = true
	would, err := r.Client.Resync(ctx, ask)
	n := 0
	for _, s := range would.Sources {
		n += s.Taken
	}
	if err != nil || !would.Repeats || n == 0 {
		return err
	}
	cli.Printf(r.Err, "Route %s has a condition, and would repeat %s. Go on? [y/N] ", ask.Route, cli.Count(n, "notification"))
	// the end without a word is no
	answer, _ := bufio.NewReader(io.LimitReader(r.In, 100)).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was done: answer y, or give -yes")
}

// resyncAll asks, and says what came of it. It is an error if a source was not put through.
func resyncAll(ctx context.Context, r *cli.Remote, ask api.Resync) error {
	_, progress := startProgress(r.Streams, "resync")
	done, err := r.Client.Resync(ctx, ask)
	progress.Stop()
	if err != nil {
		return err
	}
	if r.Output == "json" {
		err = r.PrintJSON(done)
	} else if ask.DryRun && done.Repeats {
		cli.Printf(r.Out, "route %s has a condition: it would repeat notifications\n", ask.Route)
	}
	failed := 0
	for _, s := range done.Sources {
		if r.Output != "json" {
			cli.Printf(r.Out, "source %s: %s\n", s.Name, outcomeOf(s, ask))
		}
		switch {
		case s.Error != "":
			failed++
			cli.Printf(r.Err, "source %s: %s\n", s.Name, s.Error)
		case s.Unsynced != "" && !ask.Relist:
			cli.Printf(r.Err, "source %s is not complete yet: %s\n", s.Name, s.Unsynced)
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
