package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/deltarouter/deltarouter/internal/cases"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
)

// testCommand runs test cases.
func testCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "test",
		Args:    "[FILE | FOLDER | FOLDER/...]…",
		Summary: "Run the test cases of a configuration, without a cluster",
		Description: `
It runs the cases of the files named *_test.yaml, by default those of this folder. It exits with 0 if all cases passed,
with 1 if one failed, and with 2 if the command line, a file or a configuration has a mistake. docs/TESTING.md describes
how to write cases.`,
		Examples: []cli.Example{
			{Line: "router test ./...", Text: "the cases of this folder and of all folders below it"},
			{Line: "router test -run crash -v config_test.yaml", Text: "the cases of a file whose names contain crash, with the log"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			opts := casesOptions(made)
			f.Func("run", "`REGEXP` only the cases whose names match", func(text string) (err error) {
				opts.Run, err = regexp.Compile(text)
				var wrong *syntax.Error
				if errors.As(err, &wrong) {
					return fmt.Errorf("write a regular expression: %s", wrong.Code)
				}
				return err
			})
			schemasVar(f, &opts.Schemas)
			cli.PolicyFlags(f, &opts.Components.Policy)
			var compiled cli.Compiled
			compiled.AddFlag(f)
			f.BoolVar(&opts.Update, "update", false, "write the actual results into the files")
			f.BoolVar(&opts.Verbose, "v", false, "name every case, and show the log of the router and its handlers")
			f.DurationVar(&opts.Timeout, "timeout", caseTimeout, "`DURATION` the longest time of one case")
			return func(ctx context.Context, s cli.Streams, args []string) error {
				s, progress := startProgress(s, "test")
				defer progress.Stop()
				opts.Progress = func(what string, done, total int64) {
					progress.What(what)
					progress.Done(done, total)
				}
				opts.Files, opts.Out, opts.Cache = args, s.Out, compiled.Folder(cli.Logging{}.New(s.Err))
				if opts.Verbose {
					opts.Log = cli.Logging{}.New(s.Err)
				}
				return runCases(ctx, opts)
			}
		},
	}
}

// caseTimeout is the longest time of one case.
const caseTimeout = 30 * time.Second

// casesOptions returns the options without flags.
func casesOptions(made compile.Components) cases.Options {
	return cases.Options{Components: made, Log: slog.New(slog.DiscardHandler), Timeout: caseTimeout}
}

// schemasVar declares -schemas.
func schemasVar(f *cli.Flags, p *string) {
	f.StringVar(p, "schemas", "", "`FOLDER` the schemas that router schema pull has saved (default: those that the configuration names)")
}

func runCases(ctx context.Context, opts cases.Options) error {
	sum, err := cases.Run(ctx, opts)
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.Exit(cli.CodeFailed)
	case err != nil:
		return cli.Invalid(err)
	case len(sum.Invalid) > 0:
		return cli.Exit(cli.CodeUsage)
	case sum.Failed > 0:
		return cli.Exit(cli.CodeFailed)
	}
	return nil
}
