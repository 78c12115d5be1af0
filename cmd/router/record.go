package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/simulate"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const recordUsage = `Usage:
  router record -o FILE     write down what the sources of a configuration see in the cluster, until SIGINT or SIGTERM, for router replay

Flags:
  -o FILE             a new file, which is compressed with zstd if its name ends in .zst; - is standard output
  -config FILE        the configuration (default config.yaml); only its cluster and its sources count
  -source SOURCE      only this source; may be given several times
  -for DURATION       stop after this time
  -drop PATH          leave this out of every object, as in -drop 'spec.containers[*].env'; may be given several times
  -log-level LEVEL    debug, info, warn or error (default info)
  -allow-exec, -secret-dir FOLDER, -file-dir FOLDER
                      which programs and files the configuration may use, see router help

Of Secrets it is written down what their data is called, and never what it is. All else is written as the source keeps it: drop what
others must not see. What is written can be read up to the last second if the program is killed.
`

// record records.
func record(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var level slog.Level
	var file string
	var length time.Duration
	opts := simulate.RecordOptions{Version: version, Components: components()}
	flags := newFlags("router record", io.Discard)
	flags.StringVar(&file, "o", "", "")
	flags.StringVar(&opts.Config, "config", "config.yaml", "")
	flags.DurationVar(&length, "for", 0, "")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "")
	cli.PolicyFlags(flags, &opts.Components.Policy)
	flags.Func("source", "", func(name string) error {
		opts.Sources = append(opts.Sources, name)
		return nil
	})
	flags.Func("drop", "", func(path string) error {
		// a path goes on in every element of a list by itself
		opts.Drop = append(opts.Drop, strings.ReplaceAll(path, "[*]", ""))
		return nil
	})
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, recordUsage)
		return exitOK
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case file == "":
		err = errors.New("-o FILE is missing")
	case length < 0:
		err = errors.New("-for must not be negative")
	}
	if err != nil {
		fmt.Fprintf(stderr, "router record: %v\n%s", err, recordUsage)
		return exitUsage
	}
	opts.Log = newLogger(stderr, level)
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	return recordTo(ctx, file, opts, stdout, stderr)
}

// recordTo records into a file that is not there yet.
func recordTo(ctx context.Context, file string, opts simulate.RecordOptions, stdout, stderr io.Writer) int {
	opts.Out = stdout
	end := func() error { return nil }
	if file != "-" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			fmt.Fprintf(stderr, "router record: -o: %v: name a file that is not there, in a folder that is\n", err)
			return exitUsage
		}
		opts.Out, opts.Compress, end = f, strings.HasSuffix(file, ".zst"), f.Close
	}
	lines, err := simulate.Record(ctx, opts)
	err = errors.Join(err, end())
	var problems config.Problems
	if err != nil && lines == 0 && file != "-" {
		_ = os.Remove(file) // there is nothing in it
	}
	switch {
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, problems)
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "router record: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stderr, "%d lines were recorded\n", lines)
	return exitOK
}
