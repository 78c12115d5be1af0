// Command router routes the changes of a Kubernetes cluster as a configuration file says.
// commands.go lists its commands; router help prints them.
//
// It exits with 0 when it was stopped as asked, 1 when it failed while running, 2 if the command
// line, the configuration or another input has a mistake.
package main

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
	"github.com/deltarouter/deltarouter/internal/gclimits"
	"github.com/deltarouter/deltarouter/internal/lines"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/internal/router/worker"
	buildversion "github.com/deltarouter/deltarouter/internal/version"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// The linker sets these, see the Makefile and hack/release.
var (
	version            = "dev"
	commit, commitTime string
	modified           string // "true": built from files that differ from the commit
)

// drainTimeout is shorter than the 30 seconds that Kubernetes gives a pod by default: the rest
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
		os.Exit(cli.CodeFailed)
	}()
	return ctx, cancel
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := cli.Streams{In: os.Stdin, Out: printable.Writer(stdout), Err: printable.Writer(stderr), Raw: stdout}
	return program().Main(ctx, s, args)
}

// runCommand runs the router.
func runCommand() cli.Command {
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
			opts := router.Options{Version: version, Components: components()}
			var logging cli.Logging
			f.ConfigVar(&opts.Config, "the configuration")
			logging.AddFlags(f, slog.LevelInfo)
			f.DurationVar(&opts.DrainTimeout, "drain-timeout", drainTimeout, "`DURATION` how long to deliver the backlog when stopping")
			cli.PolicyFlags(f, &opts.Components.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				opts.Stdout, opts.Log = s.Raw, logging.New(s.Err)
				return serve(ctx, opts.Log, s, func(reload <-chan os.Signal) error {
					opts.Reload = reload
					return router.Run(ctx, opts)
				})
			}
		},
	}
}

// workerCommand runs a worker of a fleet.
func workerCommand() cli.Command {
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
			opts := worker.Options{Version: version, Components: components()}
			var logging cli.Logging
			f.ConfigVar(&opts.Config, "the configuration")
			logging.AddFlags(f, slog.LevelInfo)
			f.DurationVar(&opts.DrainTimeout, "drain-timeout", drainTimeout, "`DURATION` how long to finish deltas in hand when stopping")
			f.StringVar(&opts.Probes, "probes", "", "`ADDRESS` of the probes and metrics, instead of listen.probes")
			cli.PolicyFlags(f, &opts.Components.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				opts.Stdout, opts.Log = s.Raw, logging.New(s.Err)
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
func versionCommand() cli.Command {
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
					return s.PrintJSON(buildInfo())
				}
				fmt.Fprintf(s.Out, "router %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
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

func buildInfo() buildversion.Info {
	formats := buildversion.Formats{Handlers: make(map[string]map[string]int), State: checkpoint.Format}
	for _, kind := range components().Handlers {
		if v, ok := kind.(versioned); ok {
			formats.Handlers[v.Describe().Name] = v.Interfaces()
		}
	}
	build, _ := debug.ReadBuildInfo()
	stamp := buildversion.Stamp{Version: version, Commit: commit, CommitTime: commitTime, Modified: modified}
	return buildversion.Describe(stamp, build, formats)
}
