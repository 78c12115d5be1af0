// Package router is the program `router` with kinds of handlers and sinks of the caller's choice.
// The whole main function of a router with a sink of its own is
//
//	router.Main(append(all.Kinds(), mysink.Kind())...)
//
// Only the listed kinds are in the binary.
package router

import (
	"fmt"
	"os"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/commands"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Main runs the command `router` with the arguments of the process and ends the process: with 0 if
// it was stopped as asked, with 1 if it failed while running, with 2 if the command line, the
// configuration or another input has a mistake, or if two kinds of handlers or of sinks have the
// same name. It handles SIGINT, SIGTERM and SIGHUP, so it is called once, by main.
func Main(kinds ...plugins.AnyKind) {
	made, err := commands.Components(kinds...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(cli.CodeUsage)
	}
	os.Exit(commands.Main(made))
}
