// Command router routes the changes of a Kubernetes cluster as a configuration file says.
//
//	router -config config.yaml          runs until it is told to stop
//	router check -config config.yaml    reports every mistake of the configuration
//	router test [files]                 runs the cases beside a configuration, without a cluster
//	router dlq list -config config.yaml what could not be delivered; also show, retry, drop
//	router resume ROUTE                 lets a paused route go on
//	router resync -config config.yaml   everything once more; with -relist what differs from the API server
//	router status -config config.yaml   what in the running router is not well, and why
//	router get pods -config config.yaml what the running router has cached
//	router tap -config config.yaml      what goes by in the running router, and what routes make of it
//	router explain -config config.yaml -object o.json  why each route wants an object or not; no cluster is needed
//	router eval EXPRESSION -object o.json              what an expression says about it
//	router schema                       prints the JSON Schema of the configuration, for editors; also its reference
//	router version
//
// It exits with 0 when it was stopped as asked, 1 when it failed while running, 2 for bad flags or
// a bad configuration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/deltarouter/deltarouter/internal/check"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// version is set by the Makefile.
var version = "dev"

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// drainTimeout is shorter than the 30 seconds that Kubernetes gives a pod by default: what is left
// is for the last cut, and for closing.
const drainTimeout = 20 * time.Second

func main() {
	ctx, stop := stopOnSignal()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// stopOnSignal ends the context at the first SIGINT or SIGTERM; the second ends the process at
// once.
func stopOnSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, cancel
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	stderr = printable.Writer(stderr)
	sink := stdout // where events are written as they are
	stdout = printable.Writer(stdout)
	switch args[0] {
	case "check":
		return runCheck(ctx, args[1:], stdout, stderr)
	case "test":
		return test(ctx, args[1:], stdout, stderr)
	case "dlq":
		return deadLetters(ctx, args[1:], stdout, stderr)
	case "resync":
		return resync(ctx, args[1:], stdout, stderr)
	case "status":
		return showStatus(ctx, args[1:], stdout, stderr)
	case "resume":
		return resume(ctx, args[1:], stdout, stderr)
	case "get":
		return getObjects(ctx, args[1:], stdout, stderr)
	case "tap":
		return tap(ctx, args[1:], stdout, stderr)
	case "eval":
		return eval(ctx, args[1:], stdout, stderr)
	case "explain":
		return runExplain(ctx, args[1:], stdout, stderr)
	case "record":
		return record(ctx, args[1:], sink, stderr)
	case "replay":
		return replay(ctx, args[1:], sink, stderr)
	case "version":
		fmt.Fprintf(stdout, "router %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return exitOK
	case "schema":
		return schema(ctx, args[1:], stdout, stderr)
	case "help":
		usage(stdout)
		return exitOK
	}
	return runRouter(ctx, args, sink, stderr)
}

func usage(w io.Writer) {
	fmt.Fprint(w, `Usage:
  router -config config.yaml          run until SIGINT or SIGTERM; SIGHUP reloads the configuration, as a change of the file does
  router check -config config.yaml    report every mistake of the configuration; with -connect ask the cluster for its schemas and
                                      what the router may do, and print roles with what it lacks; and try whether sinks can
                                      be reached. With -schemas FOLDER take the schemas that router schema pull has saved.
                                      With -strict warnings count as mistakes; # check: ok in its line silences one
  router test [FILE | FOLDER]…        run the cases beside a configuration, without a cluster, see router test help
  router dlq list|show|retry|drop     what could not be delivered, see router dlq help
  router resync                       put everything through once more, or list anew, see router resync help
  router status                       what in the running router is not well, and why, see router status help
  router resume ROUTE                 let a paused route go on, see router resume help
  router get SOURCE [NAME]            what the running router has cached, see router get help
  router tap                          what goes by in the running router, and what routes make of it, see router tap help
  router explain                      why each route wants an object or not, without a cluster, see router explain help
  router eval EXPRESSION              what a CEL expression says about an object, without a cluster, see router eval help
  router record -o FILE               write down what the sources see, see router record help
  router replay -config FILE FILE     let a configuration work on what was recorded, without a cluster, see router replay help
  router schema                       print the JSON Schema of the configuration, for editors; router schema pull saves
                                      the cluster's schemas, see router schema help
  router version

Flags of router:
  -config FILE             the configuration
  -log-level LEVEL         debug, info, warn or error (default info)
  -drain-timeout DURATION  how long to deliver the backlog when stopping (default 20s)
`+cli.PolicyUsage+`
router check, test, replay, record and schema pull know the last five too. Of these only test and replay run plugins.
`)
}

// runRouter runs the router.
func runRouter(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var level slog.Level
	opts := router.Options{Stdout: stdout, Version: version, Components: components()}
	flags := newFlags("router", stderr)
	flags.StringVar(&opts.Config, "config", "", "")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "")
	flags.DurationVar(&opts.DrainTimeout, "drain-timeout", drainTimeout, "")
	cli.PolicyFlags(flags, &opts.Components.Policy)
	if code, ok := parse(flags, args, stdout, stderr); !ok {
		return code
	}
	opts.Log = newLogger(stderr, level)
	if stderr == io.Writer(os.Stderr) {
		end, err := lines.LogStderr(ctx, opts.Log)
		if err != nil {
			fmt.Fprintf(stderr, "router: stderr: %v\n", err)
			return exitFailed
		}
		defer end()
	}
	if err := cli.ProtectMemory(); err != nil {
		opts.Log.Warn("other processes of this user may read the router's memory", "err", err)
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	opts.Reload = reload
	err := router.Run(ctx, opts)
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, problems)
		return exitUsage
	case err != nil:
		opts.Log.Error("stopped", "err", err)
		return exitFailed
	}
	return exitOK
}

// runCheck reports the problems of a configuration.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := newFlags("router check", stderr)
	path := flags.String("config", "", "")
	connect := flags.Bool("connect", false, "")
	schemas := flags.String("schemas", "", "")
	strict := flags.Bool("strict", false, "")
	made := components()
	cli.PolicyFlags(flags, &made.Policy)
	if code, ok := parse(flags, args, stdout, stderr); !ok {
		return code
	}
	if *connect && *schemas != "" {
		fmt.Fprintln(stderr, "router check: -connect asks the cluster, so -schemas has no effect: leave one out")
		return exitUsage
	}
	found := check.File(ctx, *path, made, check.Options{Connect: *connect, Schemas: *schemas})
	if all := append(found.Problems, found.Warnings...); len(all) > 0 {
		fmt.Fprintln(stderr, all.Quoted())
	}
	fmt.Fprint(stdout, found.Roles)
	if len(found.Problems) > 0 || *strict && len(found.Warnings) > 0 {
		return exitUsage
	}
	if found.Roles == "" {
		fmt.Fprintf(stdout, "%s: ok\n", *path)
	}
	return exitOK
}

func newFlags(name string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {}
	return flags
}

// parse reports ok if the program goes on; else it ends with code.
func parse(flags *flag.FlagSet, args []string, stdout, stderr io.Writer) (code int, ok bool) {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return exitOK, false
	case err != nil:
		usage(stderr)
		return exitUsage, false
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", flags.Name(), flags.Arg(0))
	case flags.Lookup("config").Value.String() == "":
		fmt.Fprintf(stderr, "%s: -config FILE is missing\n", flags.Name())
	default:
		return exitOK, true
	}
	usage(stderr)
	return exitUsage, false
}

// newLogger writes text for a person at a terminal, JSON for everything else.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if e, ok := w.(*printable.Escaper); ok {
		w = e.Unwrap()
	}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(slog.NewTextHandler(printable.Writer(w), opts))
		}
	}
	return slog.New(slog.NewJSONHandler(printable.Writer(w), opts))
}
