package commands

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/internal/version"
)

// recordCommand records the changes of sources.
func recordCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "record",
		Summary: "Record the changes of the sources into a file, until SIGINT or SIGTERM, for router replay",
		Description: `
Of Secrets it records the names of their data, never the values. All else is recorded as the source keeps it: leave out
with -drop what others must not see. If the program is killed, the file is complete up to the last second.`,
		Examples: []cli.Example{
			{Line: "router record -o changes.jsonl.zst -for 1h", Text: "the changes of an hour, compressed"},
			{Line: "router record -o - -source pods -drop 'spec.containers[*].env'", Text: "the pods without their environment"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			var file string
			var length time.Duration
			var logging cli.Logging
			opts := simulate.RecordOptions{Version: version.Stamped().Version, Components: made}
			f.ConfigVar(&opts.Config, "the configuration; only its cluster and its sources count")
			f.StringVar(&file, "o", "", "`FILE` a new file, compressed with zstd if its name ends in .zst; - is standard output")
			f.DurationVar(&length, "for", 0, "`DURATION` stop after this time")
			f.StringsVar(&opts.Sources, "source", "`SOURCE` only this source")
			f.StringsVar(&opts.Drop, "drop", "`PATH` leave this out of every object, as in 'spec.containers[*].env'")
			logging.AddFlags(f, slog.LevelInfo)
			cli.PolicyFlags(f, &opts.Components.Policy)
			return func(ctx context.Context, s cli.Streams, _ []string) error {
				switch {
				case file == "":
					return cli.Mistakef("-o FILE is missing")
				case length < 0:
					return cli.Mistakef("-for %s: write a duration that is not negative", length)
				}
				s, progress := startProgress(s, "record to "+file)
				defer progress.Stop()
				progress.Lasts(length)
				opts.Log = logging.New(s.Err)
				for i, path := range opts.Drop {
					opts.Drop[i] = strings.ReplaceAll(path, "[*]", "") // a path continues in every element of a list
				}
				if length > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, length)
					defer cancel()
				}
				return recordTo(ctx, file, opts, s)
			}
		},
	}
}

// recordTo records into a new file.
func recordTo(ctx context.Context, file string, opts simulate.RecordOptions, s cli.Streams) error {
	opts.Out = s.Raw
	end := func() error { return nil }
	if file != "-" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case errors.Is(err, fs.ErrExist):
			return cli.Invalid(fmt.Errorf("-o %s: the file exists already: name a new one", file))
		case err != nil:
			return cli.Invalid(fmt.Errorf("-o %s: the file cannot be created: %w: name a file in a folder that exists", file, fileerr.Cause(err)))
		}
		opts.Out, opts.Compress, end = f, strings.HasSuffix(file, ".zst"), f.Close
	}
	lines, err := simulate.Record(ctx, opts)
	err = errors.Join(err, end())
	if err != nil && lines == 0 && file != "-" {
		_ = os.Remove(file) // it is empty
	}
	if err == nil {
		fmt.Fprintf(s.Err, "%d lines were recorded\n", lines)
	}
	return err
}
