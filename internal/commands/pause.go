package commands

import (
	"context"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
)

// pauseCommand pauses a route of the running router.
func pauseCommand() cli.Command {
	return cli.Command{
		Name:    "pause",
		Args:    "ROUTE",
		Summary: "Pause a route of the running router",
		Description: `
A paused route takes no more deltas from its queue: those that come wait, up to queue.size and to the age that maxAge
allows, and a batch in progress is finished. The pause ends with router resume, or after the time of -for. It
is kept when the configuration changes, and with state.dir across restarts. /readyz and router status name the route.

Of a route with workers, the router passes no more deltas to the workers, which finish those that they have.`,
		Examples: []cli.Example{
			{Line: "router pause alerts -for 2h", Text: "pause the route alerts for two hours"},
			{Line: "router pause alerts", Text: "pause it until router resume alerts"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			r.AddAddress(f)
			length := f.Duration("for", 0, "the `time` after which the route goes on, at least 1s; 0: when it is resumed")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				route, err := oneRoute(args, "pause")
				if err != nil {
					return err
				}
				if *length < 0 || *length > 0 && *length < time.Second {
					return cli.Mistakef("-for %s: give at least 1s, as in -for 2h", *length)
				}
				if err := r.Connect(ctx); err != nil {
					return err
				}
				done, err := r.Client.Pause(ctx, route, *length)
				if err != nil {
					return err
				}
				until := "router resume " + route
				if done.Until != nil {
					until = done.Until.Local().Format(time.RFC3339)
				}
				cli.Printf(s.Out, "route %s is paused until %s\n", route, until)
				return nil
			}
		},
	}
}

// oneRoute returns the only argument of a command.
func oneRoute(args []string, command string) (string, error) {
	switch len(args) {
	case 1:
		return args[0], nil
	case 0:
		return "", cli.Mistakef("name the route, as in router %s ROUTE", command)
	}
	return "", cli.Mistakef("unexpected argument %q: name one route", args[1])
}

// resumeCommand resumes a paused route of the running router.
func resumeCommand() cli.Command {
	return cli.Command{
		Name:    "resume",
		Args:    "ROUTE",
		Summary: "Resume a paused route of the running router",
		Description: `
A route is paused by router pause, by onFailure: pause, and by maxDeletes, maxWrites and maxPerObject of a kubernetes
sink. /readyz names the route, and router status says why it is paused. Fix the cause first: the route delivers its
backlog. Its sinks then count deletes and writes from zero.`,
		Examples: []cli.Example{{Line: "router resume alerts", Text: "resume the route alerts"}},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			r.AddAddress(f)
			return func(ctx context.Context, s cli.Streams, args []string) error {
				route, err := oneRoute(args, "resume")
				if err != nil {
					return err
				}
				if err := r.Connect(ctx); err != nil {
					return err
				}
				if err := r.Client.Resume(ctx, route); err != nil {
					return err
				}
				cli.Printf(s.Out, "route %s goes on\n", route)
				return nil
			}
		},
	}
}
