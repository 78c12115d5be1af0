package commands

import (
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/statecmd"
)

// program is the table of commands. Help, completion and the messages about mistakes in the command
// line are made from it.
func program(made compile.Components) *cli.Program {
	return &cli.Program{
		Command: cli.Command{
			Name:        "router",
			Summary:     "Route the changes of a Kubernetes cluster as a configuration says",
			Description: "The flags of router without a command are those of router run, as in router -config config.yaml.",
			Commands: []cli.Command{
				runCommand(made),
				workerCommand(made),
				initCommand(),
				checkCommand(made),
				rbacCommand(made),
				testCommand(made),
				explainCommand(made),
				evalCommand(made),
				statusCommand(),
				getCommand(),
				tapCommand(),
				historyCommand(),
				whyCommand(),
				runsCommand(),
				backtestCommand(made),
				dlqCommand(),
				pauseCommand(),
				resumeCommand(),
				resyncCommand(),
				promoteCommand(),
				statecmd.Command(),
				recordCommand(made),
				replayCommand(made),
				pluginCommand(made),
				schemaCommand(made),
				crdsCommand(),
				cli.CompletionCommand(),
				versionCommand(made),
			},
		},
		Default: "run",
		Version: "version",
	}
}
