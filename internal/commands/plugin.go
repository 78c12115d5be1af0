package commands

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/plugincmd"
	"github.com/deltarouter/deltarouter/internal/scaffold"
	"github.com/deltarouter/deltarouter/internal/toolchain"
)

// pluginCommand has the commands for authors of handlers.
func pluginCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "plugin",
		Summary: "Write, build, test, measure and publish a handler",
		Commands: append([]cli.Command{
			pluginNewCommand(),
			pluginBuildCommand(),
			pluginTestCommand(made),
		}, plugincmd.Commands(made)...),
	}
}

// pluginNewCommand writes the files of a new handler.
func pluginNewCommand() cli.Command {
	return cli.Command{
		Name:    "new",
		Args:    "FOLDER",
		Summary: "Write a handler that builds, with a configuration and a test",
		Description: `
The name of FOLDER becomes the name of the handler, a WebAssembly module. The folder gets the source, a copy of the SDK,
a configuration that uses the handler, test cases and a README. Its build needs no checkout of the router; only
AssemblyScript needs the network, for its compiler. No file is overwritten.`,
		Examples: []cli.Example{
			{Line: "router plugin new -lang go pod-phase", Text: "write a handler in Go into the new folder pod-phase"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			var lang string
			f.ChoiceVar(&lang, "lang", "go", scaffold.Languages(), "the language of the handler")
			return func(_ context.Context, s cli.Streams, args []string) error {
				if len(args) != 1 {
					return cli.Mistakef("name the folder of the handler, as in router plugin new -lang %s pod-phase", lang)
				}
				build, err := scaffold.Plugin(args[0], lang)
				if err != nil {
					return cli.Invalid(err)
				}
				cli.Printf(s.Out, "wrote a handler to %s\n\n", args[0])
				does := "build the module; router plugin build does the same and names missing programs"
				if build == "router check" {
					does = "report the mistakes of the configuration and of the handler"
				}
				next(s, [][2]string{
					{"cd " + word(args[0]), "README.md has these commands, too"},
					{build, does},
					{"router test", "run the cases of config_test.yaml through it, without a cluster"},
					{"router -config config.yaml", "run it on the cluster of your kubeconfig"},
				})
				return nil
			}
		},
	}
}

// pluginBuildCommand builds a handler.
func pluginBuildCommand() cli.Command {
	return cli.Command{
		Name:    "build",
		Args:    "[FOLDER]",
		Summary: "Build the handler in a folder, by default in this one",
		Description: `
It recognises the language by the files of the folder: build.sh (as router plugin new writes it for C and Rust), go.mod,
package.json (AssemblyScript) or Cargo.toml. It names the programs that the build needs and that are not installed, runs
the build, and writes the module FOLDER/NAME.wasm, where NAME is the name of the folder.`,
		Examples: []cli.Example{
			{Line: "router plugin build pod-phase", Text: "write pod-phase/pod-phase.wasm"},
		},
		Setup: func(*cli.Flags) cli.Run {
			return func(ctx context.Context, s cli.Streams, args []string) error {
				dir, err := oneFolder(args)
				if err != nil {
					return err
				}
				err = buildPlugin(ctx, s, dir)
				if errors.Is(err, toolchain.ErrNothing) {
					return cli.Invalid(err)
				}
				return err
			}
		},
	}
}

// oneFolder returns the argument, or this folder.
func oneFolder(args []string) (string, error) {
	switch len(args) {
	case 0:
		return ".", nil
	case 1:
		return args[0], nil
	}
	return "", cli.Mistakef("unexpected argument %q: name one folder", args[1])
}

// buildPlugin builds the handler in a folder and prints the size of the module.
func buildPlugin(ctx context.Context, s cli.Streams, dir string) error {
	build, err := toolchain.Find(dir)
	if err != nil {
		return cli.Invalid(err)
	}
	if err := build.Run(ctx, s.Err); err != nil {
		return err
	}
	info, err := os.Stat(build.Module)
	if err != nil {
		return fileerr.Explain(err)
	}
	cli.Printf(s.Out, "built %s: %s\n", build.Module, plugincmd.Size(float64(info.Size())))
	return nil
}

// pluginTestCommand builds a handler and runs its cases.
func pluginTestCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "test",
		Args:    "[FOLDER]",
		Summary: "Build the handler in a folder, and run its test cases in the router's sandbox",
		Description: `
It is router plugin build, if the handler needs a build, and then router test for the folder: the cases of the files named
*_test.yaml. router test -update writes the actual results into these files.`,
		Examples: []cli.Example{
			{Line: "router plugin test pod-phase", Text: "build pod-phase/pod-phase.wasm, run the cases of pod-phase/config_test.yaml"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			opts := casesOptions(made)
			cli.PolicyFlags(f, &opts.Components.Policy)
			var compiled cli.Compiled
			compiled.AddFlag(f)
			return func(ctx context.Context, s cli.Streams, args []string) error {
				dir, err := oneFolder(args)
				if err != nil {
					return err
				}
				if err := buildPlugin(ctx, s, dir); err != nil && !errors.Is(err, toolchain.ErrNothing) {
					return err
				}
				opts.Cache = compiled.Folder(cli.Logging{}.New(s.Err))
				opts.Files, opts.Out, opts.Progress = []string{filepath.Clean(dir)}, s.Out, func(string, int64, int64) {}
				return runCases(ctx, opts)
			}
		},
	}
}
