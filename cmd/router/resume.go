package main

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/cli"
)

// resumeCommand resumes a paused route of the running router.
func resumeCommand() cli.Command {
	return cli.Command{
		Name:    "resume",
		Args:    "ROUTE",
		Summary: "Resume a paused route of the running router",
		Description: `
A route is paused by onFailure: pause, and by maxDeletes, maxWrites and maxPerObject of a kubernetes sink, which keep
it paused across restarts. /readyz names the route, and router status says why it is paused. Fix the cause first: the
route delivers its backlog. Its sinks then count deletes and writes from zero.`,
		Examples: []cli.Example{{Line: "router resume alerts", Text: "resume the route alerts"}},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			r.AddAddress(f)
			return func(ctx context.Context, s cli.Streams, args []string) error {
				switch {
				case len(args) == 0:
					return cli.Mistakef("name the route, as in router resume ROUTE")
				case len(args) > 1:
					return cli.Mistakef("unexpected argument %q: name one route", args[1])
				}
				if err := r.Connect(ctx); err != nil {
					return err
				}
				if err := r.Client.Resume(ctx, args[0]); err != nil {
					return err
				}
				cli.Printf(s.Out, "route %s goes on\n", args[0])
				return nil
			}
		},
	}
}
