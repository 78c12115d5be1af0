package main

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/cli"
)

// checkCommand reports the mistakes of a configuration.
func checkCommand() cli.Command {
	return cli.Command{
		Name:    "check",
		Summary: "Report every mistake of a configuration",
		Description: `
It needs no cluster and runs no plugin. With -connect it asks the cluster for its schemas and for the router's
permissions, prints roles with the missing ones, and tries to reach the sinks.

The comment # check: ok at the end of a line silences a warning about it.`,
		Examples: []cli.Example{
			{Line: "router check", Text: "check config.yaml"},
			{Line: "router check -config new.yaml -strict", Text: "warnings count as mistakes"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			c := &checking{}
			made := components()
			f.ConfigVar(&c.path, "the configuration")
			f.BoolVar(&c.opts.Connect, "connect", false, "ask the cluster, and try to reach the sinks")
			schemasVar(f, &c.opts.Schemas)
			f.BoolVar(&c.strict, "strict", false, "a warning counts as a mistake")
			cli.PolicyFlags(f, &made.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				if c.opts.Connect && c.opts.Schemas != "" {
					return cli.Mistakef("-connect asks the cluster, so -schemas has no effect: leave one out")
				}
				return c.report(s, check.File(ctx, c.path, made, c.opts))
			}
		},
	}
}

// checking is a use of router check.
type checking struct {
	path   string
	opts   check.Options
	strict bool
}

func (c *checking) report(s cli.Streams, found check.Findings) error {
	if all := append(found.Problems, found.Warnings...); len(all) > 0 {
		fmt.Fprintln(s.Err, all.Quoted())
	}
	fmt.Fprint(s.Out, found.Roles)
	if len(found.Problems) > 0 || c.strict && len(found.Warnings) > 0 {
		return cli.Exit(cli.CodeUsage)
	}
	if found.Roles == "" {
		fmt.Fprintf(s.Out, "%s: ok\n", c.path)
	}
	return nil
}
