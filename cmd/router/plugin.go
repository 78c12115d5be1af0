package main

import (
	"context"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/scaffold"
)

// pluginCommand has the commands for authors of handlers.
func pluginCommand() cli.Command {
	return cli.Command{
		Name:    "plugin",
		Summary: "Write a handler",
		Commands: []cli.Command{{
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
					next(s, [][2]string{
						{"cd " + word(args[0]), "README.md has these commands, too"},
						{build, "build the module"},
						{"router test", "run the cases of config_test.yaml through it, without a cluster"},
						{"router -config config.yaml", "run it on the cluster of your kubeconfig"},
					})
					return nil
				}
			},
		}},
	}
}
