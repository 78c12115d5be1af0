package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// tapCommand shows the deltas of the running router.
func tapCommand() cli.Command {
	return cli.Command{
		Name:    "tap",
		Summary: "Show deltas of the running router, and the decision of each route, until it is interrupted",
		Description: `
At most 50 changes a second are shown; the others are counted. Of an object, only its identity is shown. For a route
with a condition, the line says since when it holds, or since when the object is deleted, and when that is reported.`,
		Examples: []cli.Example{
			{Line: "router tap -route alerts -rejected", Text: "every change, and why the route alerts does not want it"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{Formats: []string{"text", "json"}}
			var q api.TapQuery
			r.AddFlags(f)
			f.StringVar(&q.Route, "route", "", "`ROUTE` only this route")
			f.BoolVar(&q.Rejected, "rejected", false, "also the deltas that a route rejects, with the first test that fails")
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				r.Streams = s
				if err := r.Connect(); err != nil {
					return err
				}
				err := r.Client.Tap(ctx, q, func(t api.Tapped) error { return showTapped(r, t) })
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		},
	}
}

// showTapped prints one line.
func showTapped(r *cli.Remote, t api.Tapped) error {
	if r.Output == "json" {
		return json.NewEncoder(r.Out).Encode(t)
	}
	if t.Missed > 0 {
		cli.Printf(r.Out, "… %d more\n", t.Missed)
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
	_, err := fmt.Fprintln(r.Out, printable.Line(line))
	return err
}

// clock writes a time, with its day if that is not the day of now.
func clock(at, now time.Time) string {
	if at, now = at.Local(), now.Local(); at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
