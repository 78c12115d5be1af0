// Package commands contains the commands of the program `router`. commands.go lists them. Package
// pkg/router makes a program of them, with kinds of handlers and sinks.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	_ "time/tzdata" // the time zones of CEL, where the machine has none, as in the image

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/gclimits"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/internal/router/worker"
	"github.com/deltarouter/deltarouter/internal/version"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// drainTimeout is shorter than the 30 seconds that Kubernetes gives a pod by default: the rest
// is for the last cut, and for closing.
const drainTimeout = 20 * time.Second

// Main runs the command of the arguments of the process, and returns the exit code: 0 when it was
// stopped as asked, 1 when it failed while running, 2 if the command line, the configuration or
// another input has a mistake.
func Main(made compile.Components) int {
	ctx, stop := stopOnSignal()
	defer stop()
	return runProgram(ctx, made, os.Args[1:], os.Stdout, os.Stderr)
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
		os.Exit(cli.CodeFailed)
	}()
	return ctx, cancel
}

// runProgram is Main without the process around it.
func runProgram(ctx context.Context, made compile.Components, args []string, stdout, stderr io.Writer) int {
	s := cli.Streams{In: os.Stdin, Out: printable.Writer(stdout), Err: printable.Writer(stderr), Raw: stdout}
	return program(made).Main(ctx, s, args)
}

// runCommand runs the router.
func runCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "run",
		Summary: "Run the router until SIGINT or SIGTERM; router -config FILE does so too",
		Description: `
The router reloads the configuration when a file of it changes, and at SIGHUP. A second signal ends it at once.`,
		Examples: []cli.Example{
			{Line: "router -config config.yaml", Text: "run a configuration"},
			{Line: "router run", Text: "run config.yaml, or the file or folder that $" + cli.ConfigVariable + " names"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			opts := router.Options{Version: version.Stamped().Version, Components: made}
			var logging cli.Logging
			var compiled cli.Compiled
			f.ConfigVar(&opts.Config, "the configuration")
			logging.AddFlags(f, slog.LevelInfo)
			f.DurationVar(&opts.DrainTimeout, "drain-timeout", drainTimeout, "`DURATION` how long to deliver the backlog when stopping")
			compiled.AddFlagOfRouter(f)
			cli.PolicyFlags(f, &opts.Components.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				opts.Stdout, opts.Log = s.Raw, logging.New(s.Err)
				opts.Dependencies.Cache = compiled.FolderOrNone(opts.Log)
				return serve(ctx, opts.Log, s, func(reload <-chan os.Signal) error {
					opts.Reload = reload
					opts.Loading = func() func() { return gclimits.Loading(gclimits.This()) }
					return router.Run(ctx, opts)
				})
			}
		},
	}
}

// workerCommand runs a worker of a fleet.
func workerCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "worker",
		Summary: "Run the handlers and sinks of routes with workers, for the leader of the fleet",
		Description: `
A worker watches no objects: it takes the deltas of routes with workers from NATS, see fleet in the configuration. It
has the configuration of the leader, and handles a route as long as the leader has the same handler and sinks. SIGINT
and SIGTERM make it finish the deltas in hand and hand its partitions over; a second signal ends it at once.`,
		Examples: []cli.Example{
			{Line: "router worker -config config.yaml", Text: "run a worker of the fleet of a configuration"},
			{Line: "router worker -config config.yaml -probes :8082", Text: "beside a router on the same machine"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			opts := worker.Options{Version: version.Stamped().Version, Components: made}
			var logging cli.Logging
			var compiled cli.Compiled
			f.ConfigVar(&opts.Config, "the configuration")
			logging.AddFlags(f, slog.LevelInfo)
			compiled.AddFlag(f)
			f.DurationVar(&opts.DrainTimeout, "drain-timeout", drainTimeout, "`DURATION` how long to finish deltas in hand when stopping")
			f.StringVar(&opts.Probes, "probes", "", "`ADDRESS` of the probes and metrics, instead of listen.probes")
			cli.PolicyFlags(f, &opts.Components.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				opts.Stdout, opts.Log = s.Raw, logging.New(s.Err)
				opts.Cache = compiled.Folder(opts.Log)
				defer informer.QuietKlog(opts.Log)()
				return serve(ctx, opts.Log, s, func(reload <-chan os.Signal) error {
					opts.Reload = reload
					return worker.Run(ctx, opts)
				})
			}
		},
	}
}

// serve runs a router or a worker. SIGHUP makes it read its configuration again.
func serve(ctx context.Context, log *slog.Logger, s cli.Streams, run func(reload <-chan os.Signal) error) error {
	if e, ok := s.Err.(*printable.Escaper); ok && e.Unwrap() == io.Writer(os.Stderr) {
		end, err := lines.LogStderr(ctx, log)
		if err != nil {
			return fmt.Errorf("standard error cannot be logged: %w", err)
		}
		defer end()
	}
	defer gclimits.Set(gclimits.This(), log)()
	if err := cli.ProtectMemory(); err != nil {
		log.Warn("other processes of this user may read the router's memory", "err", err)
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	err := run(reload)
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		return problems
	case err != nil:
		log.Error("stopped", "err", err)
		return cli.Exit(cli.CodeFailed)
	}
	return nil
}

// versionCommand prints the version.
func versionCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "version",
		Summary: "Print the version",
		Description: `
With -o json it prints the commit, the versions of Go and of the Kubernetes client, and the versions of the interfaces
to handlers and of the format of the state file.`,
		Setup: func(f *cli.Flags) cli.Run {
			var output string
			f.ChoiceVar(&output, "o", "text", []string{"text", "json"}, "the format of the output")
			return func(_ context.Context, s cli.Streams, _ []string) error {
				if output == "json" {
					return s.PrintJSON(buildInfo(made))
				}
				fmt.Fprintf(s.Out, "router %s %s %s/%s\n", version.Stamped().Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return nil
			}
		},
	}
}

// versioned is a kind of handler whose interface to handlers has versions.
type versioned interface {
	Describe() config.Kind
	Interfaces() map[string]int
}

func buildInfo(made compile.Components) version.Info {
	formats := version.Formats{Handlers: make(map[string]map[string]int), State: checkpoint.Format}
	for _, kind := range made.Handlers {
		if v, ok := kind.(versioned); ok {
			formats.Handlers[v.Describe().Name] = v.Interfaces()
		}
	}
	build, _ := debug.ReadBuildInfo()
	return version.Describe(version.Stamped(), build, formats)
}
