package commands

import (
	"context"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/scaffold"
)

// initCommand writes a configuration to begin with.
func initCommand() cli.Command {
	return cli.Command{
		Name:    "init",
		Args:    "[FILE]",
		Summary: "Write a small configuration with test cases",
		Description: `
It writes FILE, by default config.yaml, and the cases beside it, as in config_test.yaml. The rule reports pods that crash
in a loop; with -with it goes to another receiver than standard output. No file is overwritten.`,
		Examples: []cli.Example{
			{Line: "router init", Text: "write config.yaml and config_test.yaml"},
			{Line: "router init -with slack deploy/router.yaml", Text: "the same for Slack, as deploy/router.yaml and deploy/router_test.yaml"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			var sink string
			f.ChoiceVar(&sink, "with", scaffold.DefaultSink, scaffold.Sinks(), "the receiver of the events")
			return func(_ context.Context, s cli.Streams, args []string) error {
				if len(args) > 1 {
					return cli.Mistakef("unexpected argument %q: name one file", args[1])
				}
				name := cli.ConfigDefault
				if len(args) > 0 {
					name = args[0]
				}
				config, cases, err := scaffold.Config(name, sink)
				if err != nil {
					return cli.Invalid(err)
				}
				cli.Printf(s.Out, "wrote %s and %s\n\n", config, cases)
				next(s, [][2]string{
					{"router test " + word(cases), "run the cases, without a cluster"},
					{"router -config " + word(config), "run it on the cluster of your kubeconfig"},
				})
				return nil
			}
		},
	}
}

// next prints the commands that a user runs next, each with its purpose.
func next(s cli.Streams, commands [][2]string) {
	width := 0
	for _, c := range commands {
		width = max(width, len(c[0]))
	}
	for _, c := range commands {
		cli.Printf(s.Out, "    %s%s   # %s\n", c[0], strings.Repeat(" ", width-len(c[0])), c[1])
	}
}

// word quotes a path for a shell if it needs that.
func word(path string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
