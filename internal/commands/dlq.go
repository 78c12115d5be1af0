package commands

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
)

// dlqCommand is about the dead letters of the running router.
func dlqCommand() cli.Command {
	return cli.Command{
		Name:        "dlq",
		Summary:     "List, show, redeliver or drop dead letters",
		Description: "A dead letter is a delta that a route has given up. The state folder keeps it with its error.",
		Commands: []cli.Command{
			{
				Name:     "list",
				Summary:  "List the dead letters",
				Examples: []cli.Example{{Line: "router dlq list -route alerts", Text: "those of one route"}},
				Setup: func(f *cli.Flags) cli.Run {
					return newDLQ(f, "only").run((*dlq).list, func(*dlq) error { return nil })
				},
			}, {
				Name:    "show",
				Args:    "ID…",
				Summary: "Print dead letters with their objects, as JSON",
				Setup: func(f *cli.Flags) cli.Run {
					return newDLQ(f, "").run((*dlq).show, (*dlq).checkIDs)
				},
			}, {
				Name:    "retry",
				Args:    "[ID…]",
				Summary: "Redeliver dead letters",
				Examples: []cli.Example{
					{Line: "router dlq retry 17 18", Text: "two dead letters; router dlq list shows the ids"},
					{Line: "router dlq retry -route alerts -current", Text: "all of a route, with the present state of the objects"},
				},
				Setup: func(f *cli.Flags) cli.Run {
					d := newDLQ(f, "all")
					f.BoolVar(&d.current, "current", false, "deliver the present state of the objects; drop the dead letter of a deleted object")
					return d.run((*dlq).retry, (*dlq).checkSelection)
				},
			}, {
				Name:    "drop",
				Args:    "[ID…]",
				Summary: "Delete dead letters",
				Setup: func(f *cli.Flags) cli.Run {
					return newDLQ(f, "all").run((*dlq).drop, (*dlq).checkSelection)
				},
			},
		},
	}
}

// dlq is a command about dead letters.
type dlq struct {
	cli.Remote

	route   string
	current bool

	ids []uint64
}

// newDLQ declares the flags of a command; -route names a number of dead letters of one.
func newDLQ(f *cli.Flags, number string) *dlq {
	d := &dlq{}
	d.AddFlags(f)
	if number != "" {
		f.StringVar(&d.route, "route", "", "`ROUTE` "+number+" dead letters of this route")
	}
	return d
}

// checkIDs refuses a command line without ids.
func (d *dlq) checkIDs() error {
	if len(d.ids) == 0 {
		return cli.Mistakef("name the ids: router dlq list shows them")
	}
	return nil
}

// checkSelection refuses a command line that does not say which dead letters are meant.
func (d *dlq) checkSelection() error {
	if (len(d.ids) == 0) == (d.route == "") {
		return cli.Mistakef("name either ids, see router dlq list, or -route ROUTE for all of a route")
	}
	return nil
}

// run reads the ids, checks the command line and finds the router.
func (d *dlq) run(do func(*dlq, context.Context) error, check func(*dlq) error) cli.Run {
	return func(ctx context.Context, s cli.Streams, args []string) error {
		d.Streams = s
		for _, arg := range args {
			id, err := strconv.ParseUint(arg, 10, 64)
			if err != nil {
				return cli.Mistakef("%q is not a valid id: router dlq list shows the ids", arg)
			}
			d.ids = append(d.ids, id)
		}
		if err := check(d); err != nil {
			return err
		}
		if err := d.Connect(ctx); err != nil {
			return err
		}
		return do(d, ctx)
	}
}

func (d *dlq) list(ctx context.Context) error {
	letters, err := d.Client.Letters(ctx, d.route)
	if err != nil {
		return err
	}
	d.SayStandby()
	if d.Output == "json" {
		return d.PrintJSON(append([]api.Letter{}, letters...))
	}
	if len(letters) == 0 {
		fmt.Fprintln(d.Err, "There are no dead letters.")
		return nil
	}
	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tAGE\tROUTE\tSINK\tDELTA\tATTEMPTS\tERROR")
	for i := range letters {
		l := &letters[i]
		cli.Printf(w, "%d\t%s\t%s\t%s\t%s %s %s\t%d\t%s\n", l.ID, age(time.Since(l.Time)), l.Route, dash(l.Sink),
			l.Delta.Op, l.Delta.Source, l.Delta.Key, l.Attempts, d.reason(l.Error))
	}
	return w.Flush()
}

// reason makes one line of an error, which is short on a terminal.
func (d *dlq) reason(text string) string {
	if cli.IsTerminal(d.Out) {
		return short(text)
	}
	return strings.Join(strings.Fields(text), " ")
}

// age is short, as kubectl has it.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// short makes one short line of an error.
func short(s string) string {
	const most = 80
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// show prints JSON whatever -o is: a dead letter has objects.
func (d *dlq) show(ctx context.Context) error {
	for _, id := range d.ids {
		letter, err := d.Client.Letter(ctx, id)
		if err != nil {
			return err
		}
		if err := d.PrintJSON(letter); err != nil {
			return err
		}
	}
	d.SayStandby()
	return nil
}

func (d *dlq) retry(ctx context.Context) error {
	outcome, err := d.Client.Retry(ctx, api.Selection{IDs: d.ids, Route: d.route}, d.current)
	return d.conclude(outcome, err, "Retrying")
}

func (d *dlq) drop(ctx context.Context) error {
	outcome, err := d.Client.Drop(ctx, api.Selection{IDs: d.ids, Route: d.route})
	return d.conclude(outcome, err, "Dropped")
}

// conclude prints the outcome. It returns an error if a dead letter was left unchanged.
func (d *dlq) conclude(outcome api.Outcome, err error, done string) error {
	if err != nil {
		return err
	}
	if d.Output == "json" {
		err = d.PrintJSON(outcome)
	} else {
		cli.Printf(d.Out, "%s %s.\n", done, cli.Count(outcome.Done, "dead letter"))
		if outcome.Gone > 0 {
			cli.Printf(d.Out, "Dropped %s: the object is not there any more.\n", cli.Count(outcome.Gone, "dead letter"))
		}
	}
	for _, f := range outcome.Failed {
		cli.Printf(d.Err, "dead letter %d: %s\n", f.ID, f.Error)
	}
	if outcome.NotDone > 0 {
		return fmt.Errorf("%s left unchanged", cli.Count(outcome.NotDone, "dead letter"))
	}
	return err
}
