package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/recording"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// replayCommand runs a recording through a configuration.
func replayCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "replay",
		Args:    "RECORDING",
		Summary: "Run a recording of router record through a configuration, without a cluster",
		Description: `
The configuration has no state folder and opens no ports. Without -deliver all events are printed, and HTTP requests of
handlers fail. RECORDING may be - for standard input.`,
		Examples: []cli.Example{
			{Line: "router replay -speed max changes.jsonl.zst", Text: "as fast as the routes can"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			made := made // the flags change its policy
			var path string
			var logging cli.Logging
			var compiled cli.Compiled
			opts := simulate.ReplayOptions{Speed: 1}
			f.ConfigVar(&path, "the configuration")
			f.BoolVar(&opts.Deliver, "deliver", false, "write to the sinks of the configuration, and send the HTTP requests of its handlers")
			f.DurationVar(&opts.Drain, "drain-timeout", drainTimeout, "`DURATION` how long to deliver the backlog at the end")
			f.Func("speed", "`N|max` how many times as fast as it was recorded (default 1); time passes so for all rules, too. "+
				"With max or 0 it runs as fast as the routes can, at the present time", func(text string) (err error) {
				opts.Speed, err = parseSpeed(text)
				return err
			})
			logging.AddFlags(f, slog.LevelWarn)
			compiled.AddFlag(f)
			cli.PolicyFlags(f, &made.Policy)
			return func(ctx context.Context, s cli.Streams, files []string) error {
				if len(files) != 1 {
					return cli.Mistakef("name one recording, as in router replay FILE")
				}
				s, progress := startProgress(s, "replay "+files[0])
				defer progress.Stop()
				opts.Stdout, opts.Recording = s.Raw, s.In
				if files[0] != "-" {
					file, err := cli.Open(files[0])
					if err != nil {
						return cli.Invalid(err)
					}
					defer func() { _ = file.Close() }() // it was only read
					opts.Recording = newReadProgress(file, progress)
				}
				log := logging.New(s.Err)
				return replayFrom(ctx, path, compiled.Folder(log), made, opts, log, s.Err)
			}
		},
	}
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

func replayFrom(ctx context.Context, path, cache string, made compile.Components, opts simulate.ReplayOptions, log *slog.Logger, stderr io.Writer) error {
	o, problems := simulate.NewOffline(ctx, path, "", made, cache, log)
	if len(problems) > 0 {
		return problems
	}
	done, err := o.Replay(ctx, opts)
	var wrong config.Problems
	switch {
	case errors.As(err, &wrong):
		return wrong
	case errors.Is(err, recording.ErrFormat):
		return cli.Invalid(err)
	case err != nil && ctx.Err() == nil && done.Header.Time.IsZero(): // nothing was read
		return cli.Invalid(fileerr.Explain(err))
	}
	if done.CutOff != nil {
		fmt.Fprintf(stderr, "router replay: %v: the recorder was killed, or the copy is incomplete. All up to there was played.\n", done.CutOff)
	}
	fmt.Fprintf(stderr, "played %s of cluster %s, recorded at %s, in %s\n",
		cli.Count(done.Deltas, "delta"), done.Header.Cluster, done.Header.Time.Format(time.RFC3339), printable.Duration(done.Took))
	if done.GivenUp > 0 {
		fmt.Fprintf(stderr, "given up: %s\n", cli.Count(int(done.GivenUp), "delta"))
	}
	if done.Pending != nil {
		fmt.Fprintf(stderr, "router replay: %v\n", done.Pending)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fileerr.Explain(err)
}
