package main

import (
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/statecmd"
)

// program is the table of commands. Help, completion and the messages about mistakes in the command
// line are made from it.
func program() *cli.Program {
	return &cli.Program{
		Command: cli.Command{
			Name:        "router",
			Summary:     "Route the changes of a Kubernetes cluster as a configuration says",
			Description: "The flags of router without a command are those of router run, as in router -config config.yaml.",
			Commands: []cli.Command{
				runCommand(),
				workerCommand(),
				initCommand(),
				checkCommand(),
				rbacCommand(),
				testCommand(),
				explainCommand(),
				evalCommand(),
				statusCommand(),
				getCommand(),
				tapCommand(),
				dlqCommand(),
				pauseCommand(),
				resumeCommand(),
				resyncCommand(),
				promoteCommand(),
				statecmd.Command(),
				recordCommand(),
				replayCommand(),
				pluginCommand(),
				schemaCommand(),
				crdsCommand(),
				cli.CompletionCommand(),
				versionCommand(),
			},
		},
		Default: "run",
		Version: "version",
	}
}
