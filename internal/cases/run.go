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
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// closeTimeout bounds the time for closing the components of a case.
const closeTimeout = 5 * time.Second

// Options are the options of the command line.
type Options struct {
	// files, and folders of files named *_test.yaml; empty: the current folder
	Files []string
	// a folder of compile.PullSchemas; empty: the folder that each configuration names, if any
	Schemas    string
	Components compile.Components
	Run        *regexp.Regexp // regular expression for the names of cases; nil: all
	Update     bool           // write differing results into the files
	Verbose    bool           // print the name of every case
	Timeout    time.Duration  // of one case
	Cache      string         // the folder for compiled modules; empty: a temporary one
	Out        io.Writer
	// Progress is called at the begin of each case, with the parts done of a total; nil: it is not.
	Progress func(what string, done, total int64)
	Log      *slog.Logger // of the router and the handlers
}

// Summary is the result of a run.
type Summary struct {
	Failed  int             // number of cases
	Invalid config.Problems // problems of files that could not be run
}

// Run runs the cases of all files and reports on Out in the format of go test. It returns an error
// if it could not run any.
func Run(ctx context.Context, opts Options) (sum Summary, err error) {
	files, err := find(opts.Files)
	if err != nil {
		return sum, err
	}
	cache := opts.Cache
	if cache == "" {
		cache, err = os.MkdirTemp("", "router-test-")
		if err != nil {
			return sum, fmt.Errorf("a folder for compiled handlers cannot be created: %w: set TMPDIR to a folder of this user", fileerr.Cause(err))
		}
		defer func() { err = errors.Join(err, os.RemoveAll(cache)) }()
	}
	r := &runner{Options: opts, cache: cache, configs: make(map[string]*simulate.Offline)}
	for i, file := range files {
		r.done, r.total = int64(i)*fileParts, int64(len(files))*fileParts
		failed, problems := r.file(ctx, file)
		sum.Failed += failed
		sum.Invalid = append(sum.Invalid, problems...)
	}
	return sum, ctx.Err()
}

type runner struct {
	Options

	cache       string
	done, total int64 // for Progress
	configs     map[string]*simulate.Offline
}

// open reads each configuration once.
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

// file runs the cases of one file and returns the number of failures.
func (r *runner) file(ctx context.Context, file string) (failed int, problems config.Problems) {
	began := time.Now()
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, r.invalid(file, config.Problems{{File: file, Message: fmt.Sprintf("cannot be read: %v", fileerr.Cause(err))}})
	}
	doc, problems := parseFile(file, text)
	if len(problems) > 0 {
		return 0, r.invalid(file, problems)
	}
	r.progress(file+": read the configuration", 0)
	offline, problems := r.open(ctx, doc.Config)
	if len(problems) > 0 {
		return 0, r.invalid(file, problems)
	}
	c := &checker{cfg: offline.Config(), hasBody: offline.HasBody}
	if c.check(doc, r.Update); len(c.problems) > 0 {
		return 0, r.invalid(file, c.problems.Sorted())
	}
	run, updates := 0, make(map[*testCase][]string)
	for i, t := range doc.Cases {
		if r.Run != nil && !r.Run.MatchString(t.Name) {
			continue
		}
		run++
		r.progress(file+": "+t.Name, fileParts*int64(i)/int64(len(doc.Cases)))
		if !r.one(ctx, file, offline, t, updates) {
			failed++
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(updates) > 0 {
		if err := update(file, string(text), doc, updates); err != nil {
			return failed, r.invalid(file, config.Problems{{File: file, Message: fmt.Sprintf("was not updated: %v", fileerr.Cause(err))}})
		}
		fmt.Fprintf(r.Out, "updated %s: %d\n", file, len(updates))
	}
	r.conclude(file, run, failed, time.Since(began))
	return failed, nil
}

// fileParts is how much of the total a file is, whatever its number of cases: the cases of later
// files are not read yet.
const fileParts = 1000

// progress reports the begin of a case, after some parts of the file.
func (r *runner) progress(what string, parts int64) {
	if r.Progress != nil {
		r.Progress("test "+what, r.done+parts, r.total)
	}
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

// one runs a case and reports its result. With Update, a differing case does not fail.
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

// play runs a case step by step and returns its results.
func (r *runner) play(ctx context.Context, offline *simulate.Offline, t *testCase) (came []*result, err error) {
	dir, remove, err := t.folder()
	if err != nil {
		return nil, err
	}
	defer remove()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	web := &web{answers: t.Given.HTTP, end: end, used: make(map[*answer]int)}
	// The timeout begins after the open: the time for compiling a guest is no property of the case.
	trial, err := offline.Begin(ctx, simulate.Scene{Kinds: t.kinds, Start: t.start, Dir: dir, Routes: t.Routes, HTTP: web.of})
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

// perform executes the steps of a case and returns the results.
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

// folder makes a state folder for a case with restarts.
func (t *testCase) folder() (dir string, remove func(), err error) {
	if !t.restarts {
		return "", func() {}, nil
	}
	dir, err = os.MkdirTemp("", "router-test-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// covers returns the number of following steps during which the router is down.
func (s *step) covers(behind []step) (n int) {
	for s.what == "restart" && n < len(behind) && behind[n].at < s.at+s.down {
		n++
	}
	return n
}

// play executes the step at its time. meanwhile are the steps during which the router is down.
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

// happen executes the step.
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

// results converts outcomes for the comparison.
func results(outcomes []simulate.Outcome, start time.Time) (all []*result, err error) {
	for i := range outcomes {
		o := &outcomes[i]
		r := &result{at: o.Time.Sub(start), route: o.Route, sink: o.Sink, kind: o.Event.Type, subject: o.Event.Subject, text: o.Error}
		if !r.failed() {
			if r.data, err = decode(o.Event.Data); err != nil {
				return nil, fmt.Errorf("route %q: data of an event is no JSON: %w", o.Route, err)
			}
			if r.sends = o.Body != nil; r.sends {
				if r.body, err = decode(o.Body); err != nil {
					return nil, fmt.Errorf("route %q: the body for sink %q is no JSON: %w", o.Route, o.Sink, err)
				}
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// errUnlike reports a layout that rewrite does not understand.
var errUnlike = errors.New("the layout of the file is not supported: write its cases as an indented list")

// unlike returns an error if a new text of a document differs in more than its expectations.
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

// update writes results into a file. It goes from the end to the beginning, so that positions stay
// valid.
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
