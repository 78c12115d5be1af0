package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const replayUsage = `Usage:
  router replay -config FILE RECORDING     let a configuration work on what router record has written, without a cluster

Flags:
  -config FILE              the configuration; it has no state folder and opens no ports
  -speed N                  how many times as fast as it was recorded (default 1): time passes so for all rules, too. max, or 0: as fast
                            as the routes take it, at the present time
  -deliver                  write to the sinks of the configuration, and send the HTTP requests of its handlers; without it all events
                            are printed, and requests fail
  -drain-timeout DURATION   how long to deliver the backlog at the end (default 20s)
  -log-level LEVEL          debug, info, warn or error (default warn)
  -plugin-dir FOLDER, -allow-exec, -require-digests, -secret-dir FOLDER, -file-dir FOLDER
                            which programs and files the configuration may use, see router help

RECORDING may be - for standard input.
`

// replay plays a recording.
func replay(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	level := slog.LevelWarn
	var path string
	opts := simulate.ReplayOptions{Speed: 1, Stdout: stdout}
	made := components()
	flags := newFlags("router replay", io.Discard)
	flags.StringVar(&path, "config", "", "")
	flags.BoolVar(&opts.Deliver, "deliver", false, "")
	cli.PolicyFlags(flags, &made.Policy)
	flags.DurationVar(&opts.Drain, "drain-timeout", drainTimeout, "")
	flags.TextVar(&level, "log-level", level, "")
	flags.Func("speed", "", func(text string) (err error) {
		opts.Speed, err = parseSpeed(text)
		return err
	})
	files, err := intersperse(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && len(files) == 1 && files[0] == "help" && path == "":
		fmt.Fprint(stdout, replayUsage)
		return exitOK
	case err != nil:
	case path == "":
		err = errors.New("-config FILE is missing")
	case len(files) != 1:
		err = errors.New("one recording is needed")
	}
	if err != nil {
		fmt.Fprintf(stderr, "router replay: %v\n%s", err, replayUsage)
		return exitUsage
	}
	opts.Recording = os.Stdin
	if files[0] != "-" {
		f, err := os.Open(files[0])
		if err != nil {
			fmt.Fprintf(stderr, "router replay: %v\n", err)
			return exitUsage
		}
		defer func() { _ = f.Close() }() // it was only read
		opts.Recording = f
	}
	return replayFrom(ctx, path, made, opts, newLogger(stderr, level), stderr)
}

// fastest is faster than any machine.
const fastest = 1e9

func parseSpeed(text string) (float64, error) {
	if text == "max" {
		return 0, nil
	}
	speed, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(speed) || speed < 0 || speed > fastest || speed > 0 && speed < 1/fastest {
		return 0, errors.New("give a number, as in -speed 10, or max")
	}
	return speed, nil
}

func replayFrom(ctx context.Context, path string, made compile.Components, opts simulate.ReplayOptions, log *slog.Logger, stderr io.Writer) int {
	o, problems := simulate.NewOffline(ctx, path, "", made, "", log)
	if len(problems) > 0 {
		fmt.Fprintln(stderr, problems)
		return exitUsage
	}
	done, err := o.Replay(ctx, opts)
	var wrong config.Problems
	switch {
	case errors.As(err, &wrong):
		fmt.Fprintln(stderr, wrong)
		return exitUsage
	case errors.Is(err, recording.ErrFormat):
		fmt.Fprintf(stderr, "router replay: %v\n", err)
		return exitUsage
	}
	if done.CutOff != nil {
		fmt.Fprintf(stderr, "router replay: %v: who wrote it was killed, or it was not copied whole. All up to there was played.\n", done.CutOff)
	}
	fmt.Fprintf(stderr, "played %s of cluster %s, recorded at %s, in %s\n",
		cli.Count(done.Deltas, "delta"), done.Header.Cluster, done.Header.Time.Format(time.RFC3339), done.Took.Round(time.Millisecond))
	if done.GivenUp > 0 {
		fmt.Fprintf(stderr, "given up: %s\n", cli.Count(int(done.GivenUp), "delta"))
	}
	if done.Pending != nil {
		fmt.Fprintf(stderr, "router replay: %v\n", done.Pending)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(stderr, "router replay: %v\n", err)
		return exitFailed
	}
	return exitOK
}
