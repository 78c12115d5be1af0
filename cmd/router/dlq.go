package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

const dlqUsage = `Usage:
  router dlq list [-route R]                       what could not be delivered
  router dlq show ID…                              all of it, with the objects
  router dlq retry {ID… | -route R} [-current]     puts it through its route again
  router dlq drop {ID… | -route R}                 forgets it

Flags:
  -config FILE   the running router's configuration, to find listen.api
  -api ADDR      listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock
  -route ROUTE   only, or all, of this route
  -current       deliver the objects' present state; what is gone is dropped
  -o FORMAT      table or json (default table)
`

// dlq is the command about dead letters.
type dlq struct {
	cli.Remote

	route   string
	current bool

	ids []uint64
}

// deadLetters talks to the running router about its dead letters.
func deadLetters(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	d := &dlq{Remote: cli.Remote{Stdout: stdout, Stderr: stderr}}
	if len(args) == 0 {
		fmt.Fprint(stderr, dlqUsage)
		return exitUsage
	}
	do, known := map[string]func(context.Context) error{"list": d.list, "show": d.show, "retry": d.retry, "drop": d.drop}[args[0]]
	if !known {
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			fmt.Fprint(stdout, dlqUsage)
			return exitOK
		}
		cli.Printf(stderr, "router dlq: unknown command %q\n%s", args[0], dlqUsage)
		return exitUsage
	}
	err := d.parse(args[0], args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, dlqUsage)
		return exitOK
	}
	if err != nil {
		cli.Printf(stderr, "router dlq %s: %v\n", args[0], err)
		return exitUsage
	}
	if err := do(ctx); err != nil {
		cli.Printf(stderr, "router dlq %s: %v\n", args[0], err)
		return exitFailed
	}
	return exitOK
}

// parse reads flags and ids, in any order, and finds the router.
func (d *dlq) parse(command string, args []string) error {
	flags := newFlags("router dlq "+command, io.Discard)
	d.AddFlags(flags)
	flags.StringVar(&d.route, "route", "", "")
	if command == "retry" {
		flags.BoolVar(&d.current, "current", false, "")
	}
	for {
		if err := flags.Parse(args); err != nil {
			return err
		}
		if args = flags.Args(); len(args) == 0 {
			break
		}
		id, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no id: see router dlq list", args[0])
		}
		d.ids, args = append(d.ids, id), args[1:]
	}
	switch {
	case command == "list" && len(d.ids) > 0:
		return errors.New("takes no ids: see router dlq show")
	case command == "show" && (len(d.ids) == 0 || d.route != ""):
		return errors.New("name the ids, see router dlq list")
	case command != "list" && command != "show" && (len(d.ids) == 0) == (d.route == ""):
		return errors.New("name either ids, see router dlq list, or -route R for all of a route")
	}
	return d.Connect()
}

func (d *dlq) list(ctx context.Context) error {
	letters, err := d.Client.Letters(ctx, d.route)
	if err != nil {
		return err
	}
	if d.Output == "json" {
		return d.PrintJSON(append([]api.Letter{}, letters...))
	}
	if len(letters) == 0 {
		fmt.Fprintln(d.Stderr, "There are no dead letters.")
		return nil
	}
	w := tabwriter.NewWriter(d.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tAGE\tROUTE\tSINK\tDELTA\tATTEMPTS\tERROR")
	for i := range letters {
		l := &letters[i]
		cli.Printf(w, "%d\t%s\t%s\t%s\t%s %s %s\t%d\t%s\n", l.ID, age(time.Since(l.Time)), l.Route, dash(l.Sink),
			l.Delta.Op, l.Delta.Source, l.Delta.Key, l.Attempts, short(l.Error))
	}
	return w.Flush()
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

// show prints JSON in any case: it has objects in it.
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

// conclude says what was done. It is an error if anything was not.
func (d *dlq) conclude(outcome api.Outcome, err error, done string) error {
	if err != nil {
		return err
	}
	if d.Output == "json" {
		err = d.PrintJSON(outcome)
	} else {
		cli.Printf(d.Stdout, "%s %s.\n", done, cli.Count(outcome.Done, "dead letter"))
		if outcome.Gone > 0 {
			cli.Printf(d.Stdout, "Dropped %s: the object is not there any more.\n", cli.Count(outcome.Gone, "dead letter"))
		}
	}
	for _, f := range outcome.Failed {
		cli.Printf(d.Stderr, "dead letter %d: %s\n", f.ID, f.Error)
	}
	if outcome.NotDone > 0 {
		return fmt.Errorf("%s left unchanged", cli.Count(outcome.NotDone, "dead letter"))
	}
	return err
}
