package main

import (
	"context"
	"fmt"
	"io"

	"github.com/deltarouter/deltarouter/pkg/config"
)

const schemaUsage = `Usage:
  router schema config       print the JSON Schema of the configuration, for editors; so does router schema alone
  router schema reference    print docs/CONFIG.md: each key of the configuration, in Markdown
`

// schema prints what there is to know about the configuration.
func schema(_ context.Context, args []string, stdout, stderr io.Writer) int {
	what := "config"
	if len(args) > 0 {
		what = args[0]
	}
	switch {
	case what == "help", what == "-h", what == "-help", what == "--help":
		fmt.Fprint(stdout, schemaUsage)
		return exitOK
	case len(args) > 1:
		fmt.Fprintf(stderr, "router schema: unexpected argument %q\n", args[1])
		return exitUsage
	}
	var text []byte
	switch what {
	case "config":
		text = config.Schema(components().Kinds())
	case "reference":
		text = config.Reference(components().Kinds())
	default:
		fmt.Fprintf(stderr, "router schema: there is no %q%s\n", what, config.Suggest(what, []string{"config", "reference", "pull"}))
		return exitUsage
	}
	if _, err := stdout.Write(text); err != nil {
		fmt.Fprintf(stderr, "router schema: %v\n", err)
		return exitFailed
	}
	return exitOK
}
