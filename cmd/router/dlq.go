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

	"github.com/deltarouter/deltarouter/pkg/api"
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
	remote

	route   string
	current bool

	ids []uint64
}

// deadLetters talks to the running router about its dead letters.
func deadLetters(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	d := &dlq{remote: remote{stdout: stdout, stderr: stderr}}
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
		fmt.Fprintf(stderr, "router dlq: unknown command %q\n%s", args[0], dlqUsage)
		return exitUsage
	}
	err := d.parse(args[0], args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, dlqUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "router dlq %s: %v\n", args[0], err)
		return exitUsage
	}
	if err := do(ctx); err != nil {
		fmt.Fprintf(stderr, "router dlq %s: %v\n", args[0], err)
		return exitFailed
	}
	return exitOK
}

// parse reads flags and ids, in any order, and finds the router.
func (d *dlq) parse(command string, args []string) error {
	flags := newFlags("router dlq "+command, io.Discard)
	d.flags(flags)
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
	return d.connect()
}

func (d *dlq) list(ctx context.Context) error {
	letters, err := d.client.Letters(ctx, d.route)
	if err != nil {
		return err
	}
	if d.output == "json" {
		return d.json(append([]api.Letter{}, letters...))
	}
	if len(letters) == 0 {
		fmt.Fprintln(d.stderr, "There are no dead letters.")
		return nil
	}
	w := tabwriter.NewWriter(d.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tAGE\tROUTE\tSINK\tDELTA\tATTEMPTS\tERROR")
	for i := range letters {
		l := &letters[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s %s %s\t%d\t%s\n", l.ID, age(time.Since(l.Time)), l.Route, dash(l.Sink),
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

// short makes one line of an error, fit for a terminal.
func short(s string) string {
	const most = 80
	s = strings.Join(strings.Fields(strings.Map(printable, s)), " ")
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// printable keeps what others wrote from steering the terminal.
func printable(r rune) rune {
	if strconv.IsPrint(r) {
		return r
	}
	return ' '
}

// show prints JSON in any case: it has objects in it.
func (d *dlq) show(ctx context.Context) error {
	for _, id := range d.ids {
		letter, err := d.client.Letter(ctx, id)
		if err != nil {
			return err
		}
		if err := d.json(letter); err != nil {
			return err
		}
	}
	return nil
}

func (d *dlq) retry(ctx context.Context) error {
	outcome, err := d.client.Retry(ctx, api.Selection{IDs: d.ids, Route: d.route}, d.current)
	return d.conclude(outcome, err, "go to their routes again")
}

func (d *dlq) drop(ctx context.Context) error {
	outcome, err := d.client.Drop(ctx, api.Selection{IDs: d.ids, Route: d.route})
	return d.conclude(outcome, err, "were dropped")
}

// conclude says what was done. It is an error if anything was not.
func (d *dlq) conclude(outcome api.Outcome, err error, done string) error {
	if err != nil {
		return err
	}
	if d.output == "json" {
		err = d.json(outcome)
	} else {
		fmt.Fprintf(d.stdout, "%d dead letters %s.\n", outcome.Done, done)
		if outcome.Gone > 0 {
			fmt.Fprintf(d.stdout, "%d were dropped: their objects are not there any more.\n", outcome.Gone)
		}
	}
	for _, f := range outcome.Failed {
		fmt.Fprintf(d.stderr, "dead letter %d: %s\n", f.ID, f.Error)
	}
	if outcome.NotDone > 0 {
		return fmt.Errorf("%d dead letters are as they were", outcome.NotDone)
	}
	return err
}
