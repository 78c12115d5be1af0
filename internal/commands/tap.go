package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/explain"
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
			var color string
			r.AddFlags(f)
			f.ChoiceVar(&color, "color", cli.ColorAuto, cli.ColorModes(), "colours; auto: on a terminal, unless NO_COLOR is set")
			f.StringVar(&q.Route, "route", "", "`ROUTE` only this route")
			f.BoolVar(&q.Rejected, "rejected", false, "also the deltas that a route rejects, with the first test that fails")
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				r.Streams = s
				if err := r.Connect(ctx); err != nil {
					return err
				}
				paint := cli.NewPaint(s.Raw, color)
				err := r.Client.Tap(ctx, q, func(t api.Tapped) error { return showTapped(r, paint, &t) })
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		},
	}
}

// showTapped prints one line.
func showTapped(r *cli.Remote, paint cli.Paint, t *api.Tapped) error {
	if r.Output == "json" {
		return json.NewEncoder(r.Out).Encode(t)
	}
	if t.Missed > 0 {
		cli.Printf(r.Out, "… %d more\n", t.Missed)
	}
	// The colours are control characters of our own, so each part is cleaned by itself.
	part := func(c cli.Color, text string) string { return paint.Text(c, printable.Line(text)) }
	key := part(cli.Bold, t.Key)
	if t.Event != "" {
		key += part("", " ("+t.Event+")")
	}
	_, err := fmt.Fprintf(r.Raw, "%s %s %s %s  %s: %s%s\n", part(cli.Faint, t.Time.Local().Format("15:04:05.000")), part(opColors[t.Op], t.Op),
		part("", t.Source), key, part("", t.Route), part(verdictColors[t.Verdict], t.Verdict), part("", detail(t)))
	return err
}

// detail returns the text of a line behind the verdict.
func detail(t *api.Tapped) (text string) {
	if t.Why != "" {
		text += ": " + short(t.Why)
	}
	if t.At != "" {
		text += "  (" + t.At + ")"
	}
	if t.Reason != "" {
		text += ": " + t.Reason
	}
	if t.State != "" {
		text += ", " + t.State + " since " + clock(t.Since, t.Time)
	}
	if !t.Due.IsZero() {
		text += ", due at " + clock(t.Due, t.Time)
	}
	return text
}

// The colours of ops and verdicts. Those that are not here have none.
var (
	opColors = map[string]cli.Color{
		"added": cli.Green, "updated": cli.Cyan, "deleted": cli.Red, "deselected": cli.Red,
	}
	verdictColors = map[string]cli.Color{
		explain.Matches: cli.Green, explain.Holds: cli.Green, explain.MatchesNot: cli.Faint, explain.HoldsNot: cli.Faint,
		explain.MatchFails: cli.Red, explain.GivenUp: cli.Red, explain.Suppressed: cli.Yellow,
	}
)

// clock writes a time, with its day if that is not the day of now.
func clock(at, now time.Time) string {
	if at, now = at.Local(), now.Local(); at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}
