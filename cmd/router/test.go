package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"time"

	"github.com/deltarouter/deltarouter/internal/cases"
	"github.com/deltarouter/deltarouter/internal/cli"
)

const testUsage = `Usage:
  router test [FLAGS] [FILE | FOLDER | FOLDER/...]…   run the cases of files named *_test.yaml (default: those of this folder)

Flags:
  -run REGEXP        only cases whose names match
  -update            write what came into the files, where it is not what was expected
  -v                 name every case, and show the log of the router and its handlers
  -timeout DURATION  of one case (default 30s)
  -schemas FOLDER    what router schema pull has saved (default: what each configuration says)
  -plugin-dir FOLDER, -require-digests, -secret-dir FOLDER, -file-dir FOLDER
                     which programs and files the configurations may use, see router help

It exits with 0 if all cases passed, 1 if one failed, 2 for bad flags, files or configurations. docs/TESTING.md says how to write cases.
`

// test runs cases without a cluster.
func test(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts := cases.Options{Components: components(), Out: stdout, Log: slog.New(slog.DiscardHandler)}
	flags := newFlags("router test", io.Discard)
	flags.Func("run", "", func(text string) (err error) {
		opts.Run, err = regexp.Compile(text)
		return err
	})
	flags.StringVar(&opts.Schemas, "schemas", "", "")
	cli.PolicyFlags(flags, &opts.Components.Policy)
	flags.BoolVar(&opts.Update, "update", false, "")
	flags.BoolVar(&opts.Verbose, "v", false, "")
	flags.DurationVar(&opts.Timeout, "timeout", 30*time.Second, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) || len(args) == 1 && args[0] == "help" {
		fmt.Fprint(stdout, testUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "router test: %v\n%s", err, testUsage)
		return exitUsage
	}
	opts.Files = flags.Args()
	if opts.Verbose {
		opts.Log = newLogger(stderr, slog.LevelInfo)
	}
	sum, err := cases.Run(ctx, opts)
	switch {
	case err != nil && ctx.Err() != nil:
		return exitFailed
	case err != nil:
		fmt.Fprintf(stderr, "router test: %v\n", err)
		return exitUsage
	case len(sum.Invalid) > 0:
		return exitUsage
	case sum.Failed > 0:
		return exitFailed
	}
	return exitOK
}
