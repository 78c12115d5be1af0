package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/backtest"
	"github.com/deltarouter/deltarouter/internal/cases"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// backtestCommand runs rules on the past.
func backtestCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "backtest",
		Args:    "[RECORDING]",
		Summary: "Show what the routes of a configuration would have told in the last days",
		Description: `
It reads the history of the running router, or a RECORDING of router record or -save, and runs the routes on it here, with
its clock and as fast as possible. Sinks get nothing. Requests of handlers get the answers of -answers, and fail
otherwise. With -against it compares two configurations: + is a new event, - one that is gone, ~ one at another time.

It exits with 1 if more than -max events would have been told, for a check of a pull request.`,
		Examples: []cli.Example{
			{Line: "router backtest -config new.yaml -in ops/deltarouter-0 -since 7d", Text: "the last seven days of the router in a pod"},
			{Line: "router backtest -config new.yaml -against config.yaml", Text: "beside the rules of now"},
			{Line: "router backtest -config new.yaml -route crashes -expect 'event.data.count > 3'", Text: "count false alarms"},
			{Line: "router backtest -config new.yaml week.rec -o markdown -max 20", Text: "in CI"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			b := &backtesting{made: made, office: backtest.Hours{From: 8, To: 18}}
			b.addFlags(f)
			return b.run
		},
	}
}

// backtesting has the flags of the command.
type backtesting struct {
	cli.Remote

	made                     compile.Components
	old, since, until, save  string
	expect, answers, schemas string
	routes                   []string
	most, limit              int
	office                   backtest.Hours
	logging                  cli.Logging
	compiled                 cli.Compiled
	begin                    time.Time // that was asked for
	path                     string    // of the recording
	remove                   bool      // the recording is a temporary file
}

func (b *backtesting) addFlags(f *cli.Flags) {
	f.ConfigVar(&b.Config, "the configuration whose routes run; without -api or -in, also the one whose listen.api is asked for the history")
	f.StringVar(&b.old, "against", "", "`FILE` another configuration, to compare with")
	f.StringsVar(&b.routes, "route", "`ROUTE` only this route; may be repeated")
	f.StringVar(&b.since, "since", "24h", "`TIME` the begin: how long ago, as in 2h or 7d, or a time, as in 2006-01-02T15:04:05Z")
	f.StringVar(&b.until, "until", "", "`TIME` the end, in the same form; by default now")
	f.StringVar(&b.expect, "expect", "", "`EXPRESSION` over event: one for which it is false is a false alarm")
	f.StringVar(&b.answers, "answers", "", "`FILE` with test cases: their given.http answers the requests of handlers")
	f.StringVar(&b.save, "save", "", "`FILE` keep the history there, as a recording")
	f.IntVar(&b.most, "max", -1, "`N` exit with 1 if more events would have been told; with -expect: more false alarms")
	f.IntVar(&b.limit, "limit", 20, "`N` the events that are shown of each route")
	f.Func("office", "`FROM-TO` the working hours, Monday to Friday in local time (default 8-18)", func(text string) error {
		parts := regexp.MustCompile(`^(\d{1,2})-(\d{1,2})$`).FindStringSubmatch(text)
		if parts == nil {
			return errors.New("write two hours, as in 8-18")
		}
		b.office.From, _ = strconv.Atoi(parts[1]) // two digits
		if b.office.To, _ = strconv.Atoi(parts[2]); b.office.From >= b.office.To || b.office.To > 24 {
			return errors.New("the first hour must be before the second, which is at most 24")
		}
		return nil
	})
	f.ChoiceVar(&b.Output, "o", "text", []string{"text", "markdown", "json"}, "the format of the output")
	schemasVar(f, &b.schemas)
	f.Group("Which router", func() { cli.AddRouter(f, &b.To, "listen.api of the router whose history is read") })
	b.logging.AddFlags(f, slog.LevelError)
	b.compiled.AddFlag(f)
	cli.PolicyFlags(f, &b.made.Policy)
}

func (b *backtesting) run(ctx context.Context, s cli.Streams, args []string) error {
	if len(args) > 1 || len(args) == 1 && (b.Given() || b.save != "") {
		return cli.Mistakef("name one recording, or the router whose history is read")
	}
	s, progress := startProgress(s, "backtest")
	defer progress.Stop()
	b.Streams = s
	log := b.logging.New(s.Err)
	opts := backtest.Options{Routes: b.routes, Expect: b.expect, Office: b.office}
	var err error
	if opts.New, err = b.rules(ctx, b.Config, log); err != nil {
		return err
	}
	if b.old != "" {
		if opts.Old, err = b.rules(ctx, b.old, log); err != nil {
			return err
		}
	}
	if err := b.checkRoutes(opts.New, opts.Old); err != nil {
		return err
	}
	if b.answers != "" {
		data, err := cli.ReadFile(s, b.answers)
		if err != nil {
			return cli.Invalid(err)
		}
		var problems config.Problems
		if opts.Answers, problems = cases.Answers(b.answers, data, backtest.ErrNoAnswer); len(problems) > 0 {
			return problems
		}
	}
	if len(args) == 1 {
		b.path = args[0]
	} else if err := b.fetch(ctx, opts.New, opts.Old); err != nil {
		return err
	}
	defer b.clean()
	opts.Since = b.begin
	opts.Open = func() (io.ReadCloser, error) {
		file, err := cli.Open(b.path)
		if err != nil {
			return nil, cli.Invalid(err)
		}
		return struct {
			io.Reader
			io.Closer
		}{newReadProgress(file, progress), file}, nil
	}
	report, err := backtest.Run(ctx, opts)
	var mistake *backtest.ExpectError
	switch {
	case errors.As(err, &mistake):
		return cli.Mistakef("%s", mistake.Error())
	case errors.Is(err, recording.ErrFormat):
		return cli.Invalid(err)
	case err != nil:
		return err
	}
	progress.Stop()
	return b.print(report)
}

// rules reads a configuration.
func (b *backtesting) rules(ctx context.Context, path string, log *slog.Logger) (*simulate.Offline, error) {
	o, problems := simulate.NewOffline(ctx, path, b.schemas, b.made, b.compiled.Folder(log), log)
	if len(problems) > 0 {
		return nil, problems
	}
	return o, nil
}

// checkRoutes checks that the named routes exist in one of the configurations.
func (b *backtesting) checkRoutes(all ...*simulate.Offline) error {
	var known []string
	for _, o := range all {
		if o != nil {
			for _, route := range o.Config().Routes {
				known = append(known, route.Name)
			}
		}
	}
	for _, name := range b.routes {
		if !slices.Contains(known, name) {
			return cli.Mistakef("-route %s: there is no such route%s", name, config.Suggest(name, known))
		}
	}
	return nil
}

// fetch gets the history of the sources that the configurations read, from the running router.
func (b *backtesting) fetch(ctx context.Context, rules ...*simulate.Offline) error {
	now := time.Now()
	q := api.ExcerptQuery{}
	var err error
	if q.Since, err = timeOf("since", b.since, now); err == nil {
		q.Until, err = timeOf("until", b.until, now)
	}
	if err == nil {
		err = b.Connect(ctx)
	}
	if err != nil {
		return err
	}
	b.begin = q.Since
	sources, err := b.Client.Sources(ctx)
	if err != nil {
		return err
	}
	for _, source := range sources {
		if slices.ContainsFunc(rules, func(o *simulate.Offline) bool { return o != nil && o.Reads(source.Name, source.Resource) }) {
			q.Sources = append(q.Sources, source.Name)
		}
	}
	if len(q.Sources) == 0 {
		return fmt.Errorf("the running router has no source with a resource of %s", b.Config)
	}
	stream, err := b.Client.Excerpt(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	return b.store(stream)
}

// store writes the recording to a file: each configuration reads it once.
func (b *backtesting) store(stream io.Reader) (err error) {
	var file *os.File
	if b.save != "" {
		file, err = os.OpenFile(b.save, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	} else {
		file, err = os.CreateTemp("", "backtest-*.rec")
		b.remove = true
	}
	if err != nil {
		return fileerr.Explain(err)
	}
	b.path = file.Name()
	_, err = io.Copy(file, stream)
	if err = errors.Join(err, file.Close()); err != nil {
		b.remove = true
		b.clean()
		return fmt.Errorf("the history could not be read: %w", fileerr.Explain(err))
	}
	return nil
}

func (b *backtesting) clean() {
	if b.remove {
		_ = os.Remove(b.path) // a temporary file
	}
}

// print prints the report, and returns an error if it has too many events.
func (b *backtesting) print(r *backtest.Report) error {
	switch b.Output {
	case "json":
		encoder := json.NewEncoder(b.Out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return err
		}
	case "markdown":
		r.Markdown(b.Out, b.limit)
	default:
		r.Text(b.Out, b.limit)
	}
	n, what := 0, "events"
	for i := range r.Routes {
		if b.expect == "" {
			n += r.Routes[i].Told
		} else {
			n, what = n+r.Routes[i].False, "false alarms"
		}
	}
	if b.most >= 0 && n > b.most {
		return fmt.Errorf("%d %s would have been told, and -max is %d", n, what, b.most)
	}
	return nil
}
