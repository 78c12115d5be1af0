package cases

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// closeTimeout is how long the parts of a case may take to close.
const closeTimeout = 5 * time.Second

// Options is what the command line says.
type Options struct {
	// or folders, of which the files named *_test.yaml are taken; none: those of the current folder
	Files []string
	// the folder of compile.PullSchemas; empty: the one that each configuration names, if any
	Schemas    string
	Components compile.Components
	Run        *regexp.Regexp // only cases whose names match; nil: all
	Update     bool           // write what came into the files, where it is not what was expected
	Verbose    bool           // name every case
	Timeout    time.Duration  // of one case
	Out        io.Writer
	Log        *slog.Logger // of the router and the handlers
}

// Summary is how it went.
type Summary struct {
	Failed  int             // cases
	Invalid config.Problems // of files that could not be run
}

// Run runs the cases of all files and reports on Out, as go test does. The error says that nothing
// could be run at all.
func Run(ctx context.Context, opts Options) (sum Summary, err error) {
	files, err := find(opts.Files)
	if err != nil {
		return sum, err
	}
	cache, err := os.MkdirTemp("", "router-test-")
	if err != nil {
		return sum, fmt.Errorf("a folder for compiled handlers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cache)) }()
	r := &runner{Options: opts, cache: cache, configs: make(map[string]*simulate.Offline)}
	for _, file := range files {
		failed, problems := r.file(ctx, file)
		sum.Failed += failed
		sum.Invalid = append(sum.Invalid, problems...)
	}
	return sum, ctx.Err()
}

type runner struct {
	Options

	cache   string
	configs map[string]*simulate.Offline
}

// open reads a configuration, once.
func (r *runner) open(ctx context.Context, path string) (*simulate.Offline, config.Problems) {
	if o := r.configs[path]; o != nil {
		return o, nil
	}
	o, problems := simulate.NewOffline(ctx, path, r.Schemas, r.Components, r.cache, r.Log)
	if len(problems) == 0 {
		r.configs[path] = o
	}
	return o, problems
}

// file runs the cases of one file and returns how many failed.
func (r *runner) file(ctx context.Context, file string) (failed int, problems config.Problems) {
	began := time.Now()
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, r.invalid(file, config.Problems{{File: file, Message: fmt.Sprintf("cannot be read: %v", err)}})
	}
	doc, problems := parseFile(file, text)
	if len(problems) > 0 {
		return 0, r.invalid(file, problems)
	}
	offline, problems := r.open(ctx, doc.Config)
	if len(problems) > 0 {
		return 0, r.invalid(file, problems)
	}
	c := &checker{cfg: offline.Config()}
	if c.check(doc, r.Update); len(c.problems) > 0 {
		return 0, r.invalid(file, c.problems.Sorted())
	}
	run, updates := 0, make(map[*testCase][]string)
	for _, t := range doc.Cases {
		if r.Run != nil && !r.Run.MatchString(t.Name) {
			continue
		}
		run++
		if !r.one(ctx, file, offline, t, updates) {
			failed++
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(updates) > 0 {
		if err := update(file, string(text), doc, updates); err != nil {
			return failed, r.invalid(file, config.Problems{{File: file, Message: fmt.Sprintf("was not updated: %v", err)}})
		}
		fmt.Fprintf(r.Out, "updated %s: %d\n", file, len(updates))
	}
	r.conclude(file, run, failed, time.Since(began))
	return failed, nil
}

// invalid reports a file that cannot be run.
func (r *runner) invalid(file string, problems config.Problems) config.Problems {
	fmt.Fprintf(r.Out, "%v\nFAIL %s [invalid]\n", problems, file)
	return problems
}

func (r *runner) conclude(file string, run, failed int, took time.Duration) {
	switch {
	case failed > 0:
		fmt.Fprintf(r.Out, "FAIL %s %s, %d failed %.1fs\n", file, count(run), failed, took.Seconds())
	case run == 0:
		fmt.Fprintf(r.Out, "ok   %s [no cases to run]\n", file)
	default:
		fmt.Fprintf(r.Out, "ok   %s %s %.1fs\n", file, count(run), took.Seconds())
	}
}

func count(cases int) string {
	if cases == 1 {
		return "1 case"
	}
	return fmt.Sprintf("%d cases", cases)
}

// one runs a case and reports it. Where the file is to be updated, a case that is not as expected
// does not fail.
func (r *runner) one(ctx context.Context, file string, offline *simulate.Offline, t *testCase, updates map[*testCase][]string) (ok bool) {
	began := time.Now()
	came, err := r.play(ctx, offline, t)
	streams := t.streams(offline.Config(), came)
	took := time.Since(began).Seconds()
	switch {
	case err != nil:
		fmt.Fprintf(r.Out, "--- FAIL: %s (%.2fs)\n%s\n", t.title(file), took, indent(err.Error(), "    "))
		return false
	case r.Update && (!allOK(streams) || t.Expect.IsZero()):
		updates[t] = expectLines(streams)
	case !allOK(streams):
		fmt.Fprintf(r.Out, "--- FAIL: %s (%.2fs)\n%s", t.title(file), took, indent(diff(streams), "    "))
		return false
	}
	if r.Verbose {
		fmt.Fprintf(r.Out, "--- PASS: %s (%.2fs)\n", t.title(file), took)
	}
	return true
}

// play runs a case and returns what came out, step by step.
func (r *runner) play(ctx context.Context, offline *simulate.Offline, t *testCase) (came []*result, err error) {
	dir, remove, err := t.folder()
	if err != nil {
		return nil, err
	}
	defer remove()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	web := &web{answers: t.Given.HTTP, end: end, used: make(map[*answer]int)}
	// The timeout begins behind this: how long a guest takes to compile says nothing about the
	// case.
	trial, err := offline.Begin(ctx, simulate.Scene{Kinds: t.kinds, Start: t.start, Dir: dir, HTTP: web.of})
	if err != nil {
		return nil, cmp.Or(web.unanswered(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, trial.Close(ctx))
	}()
	came, err = t.perform(ctx, trial)
	return came, cmp.Or(web.unanswered(), err)
}

// perform lets everything happen that a case gives, and returns what came out.
func (t *testCase) perform(ctx context.Context, trial *simulate.Trial) ([]*result, error) {
	if err := trial.List(ctx, t.list, t.version); err != nil {
		return nil, err
	}
	for steps := t.steps; len(steps) > 0; {
		n := steps[0].covers(steps[1:])
		if err := steps[0].play(ctx, t.start, trial, steps[1:1+n]); err != nil {
			s := steps[0]
			return nil, fmt.Errorf("at %s, %s %s %s: %w", short(s.at), s.what, s.resource, s.key, err)
		}
		steps = steps[1+n:]
	}
	if err := trial.Pass(ctx, t.start.Add(t.ends())); err != nil {
		return nil, err
	}
	if t.Given.Until == nil {
		if err := trial.Finish(ctx); err != nil {
			return nil, err
		}
	}
	return results(trial.Take(), t.start)
}

// folder makes a state folder for a case that needs one.
func (t *testCase) folder() (dir string, remove func(), err error) {
	if !t.restarts {
		return "", func() {}, nil
	}
	dir, err = os.MkdirTemp("", "router-test-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// covers returns how many of the steps behind it happen while the router is down.
func (s *step) covers(behind []step) (n int) {
	for s.what == "restart" && n < len(behind) && behind[n].at < s.at+s.down {
		n++
	}
	return n
}

// play lets the step happen at its time. meanwhile is what happens while the router is down.
func (s *step) play(ctx context.Context, start time.Time, trial *simulate.Trial, meanwhile []step) error {
	if err := trial.Pass(ctx, start.Add(s.at)); err != nil {
		return err
	}
	if s.what != "restart" {
		return s.happen(ctx, trial)
	}
	return trial.Restart(ctx, start.Add(s.at+s.down), func(ctx context.Context) error {
		for i := range meanwhile {
			if err := meanwhile[i].happen(ctx, trial); err != nil {
				return err
			}
		}
		return nil
	})
}

// happen lets the step happen now.
func (s *step) happen(ctx context.Context, trial *simulate.Trial) error {
	switch s.what {
	case "deleted":
		return trial.Delete(ctx, s.resource, s.text)
	case "sync":
		return trial.Sync(ctx, s.resource, s.key)
	default:
		return trial.Put(ctx, s.resource, s.text)
	}
}

// results makes outcomes comparable.
func results(outcomes []simulate.Outcome, start time.Time) (all []*result, err error) {
	for i := range outcomes {
		o := &outcomes[i]
		r := &result{at: o.Time.Sub(start), route: o.Route, sink: o.Sink, kind: o.Event.Type, subject: o.Event.Subject, text: o.Error}
		if !r.failed() {
			if r.data, err = decode(o.Event.Data); err != nil {
				return nil, fmt.Errorf("route %q: data of an event is no JSON: %w", o.Route, err)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// errUnlike: the text is not laid out as rewrite can understand.
var errUnlike = errors.New("the text is laid out in an unusual way: lay out its cases as an indented list")

// unlike makes sure that nothing but what is expected differs in a new text of a document.
func (d *document) unlike(file, fresh string) error {
	other, problems := parseFile(file, []byte(fresh))
	if len(problems) > 0 || len(other.Cases) != len(d.Cases) {
		return errUnlike
	}
	for i, t := range d.Cases {
		was, err := t.Node.At("given").JSON()
		is, err2 := other.Cases[i].Node.At("given").JSON()
		if err != nil || err2 != nil || t.Name != other.Cases[i].Name || !bytes.Equal(was, is) {
			return errUnlike
		}
	}
	return nil
}

// update writes what came into a file, from its end to its beginning, so that places stay right.
func update(file, text string, doc *document, updates map[*testCase][]string) error {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := len(doc.Cases) - 1; i >= 0; i-- {
		t := doc.Cases[i]
		expect, wanted := updates[t]
		if !wanted {
			continue
		}
		var err error
		if lines, err = t.rewrite(lines, expect); err != nil {
			return err
		}
	}
	fresh := strings.Join(lines, "\n") + "\n"
	if err := doc.unlike(file, fresh); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(fresh), info.Mode().Perm())
}
