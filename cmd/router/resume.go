package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/deltarouter/deltarouter/internal/cli"
)

const resumeUsage = `Usage:
  router resume ROUTE       lets a paused route of the running router go on

A route is paused by onFailure: pause, and by maxDeletes, maxWrites and maxPerObject of a kubernetes sink, which
keep it paused across restarts. /readyz names it, and router status says why. Fix the cause first: the route
delivers its backlog. Its sinks count its deletes and writes from zero then.

Flags:
  -config FILE    the running router's configuration, to find listen.api
  -api ADDR       listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
`

// resume asks the running router to let a paused route go on.
func resume(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	r := &cli.Remote{Stdout: stdout, Stderr: stderr}
	flags := newFlags("router resume", io.Discard)
	r.AddFlags(flags)
	err := flags.Parse(args)
	route := flags.Arg(0)
	if err == nil && route != "" { // the flags may stand behind the route, too
		if err = flags.Parse(flags.Args()[1:]); err == nil && flags.NArg() > 0 {
			err = fmt.Errorf("unexpected argument %q: name one route", flags.Arg(0))
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp) || err == nil && route == "help" && r.Addr == "" && r.Config == "":
		fmt.Fprint(stdout, resumeUsage)
		return exitOK
	case err == nil && route == "":
		err = errors.New("name the route, as in router resume -config config.yaml ROUTE")
	case err == nil:
		err = r.Connect()
	}
	if err != nil {
		cli.Printf(stderr, "router resume: %v\n", err)
		return exitUsage
	}
	if err := r.Client.Resume(ctx, route); err != nil {
		cli.Printf(stderr, "router resume: %v\n", err)
		return exitFailed
	}
	cli.Printf(stdout, "route %s goes on\n", route)
	return exitOK
}
