package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/reference"
	"github.com/deltarouter/deltarouter/pkg/config"
)

const schemaUsage = `Usage:
  router schema config          print the JSON Schema of the configuration, for editors; so does router schema alone
  router schema reference       print docs/CONFIG.md: each key of the configuration, in Markdown
  router schema pull -o FOLDER  save what the cluster's resources look like, custom ones included, so that router check, test,
                                explain and eval know it without the cluster: by schemas: FOLDER in the configuration, or -schemas

Flags of pull:
  -o FOLDER         where to; what is saved is names and types of fields, nothing else of the cluster
  -config FILE      the configuration whose cluster is asked, or else:
  -kubeconfig FILE  the kubeconfig (default: $KUBECONFIG, in-cluster, ~/.kube/config)
  -context NAME     its context (default: the current one)
  -allow-exec       run the credential plugin that the kubeconfig names
`

// schema prints what there is to know about the configuration, or saves what there is to know about
// a cluster.
func schema(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	what := "config"
	if len(args) > 0 {
		what = args[0]
	}
	switch {
	case what == "help", what == "-h", what == "-help", what == "--help":
		fmt.Fprint(stdout, schemaUsage)
		return exitOK
	case what == "pull":
		return pull(ctx, args[1:], stdout, stderr)
	case len(args) > 1:
		fmt.Fprintf(stderr, "router schema: unexpected argument %q\n", args[1])
		return exitUsage
	}
	var text []byte
	switch what {
	case "config":
		text = reference.Schema(components().Kinds())
	case "reference":
		text = reference.Reference(components().Kinds())
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

// pull saves the schemas of a cluster.
func pull(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var dir, file string
	var cluster config.Cluster
	var policy config.Policy
	flags := newFlags("router schema pull", io.Discard)
	cli.PolicyFlags(flags, &policy)
	flags.StringVar(&dir, "o", "", "")
	flags.StringVar(&file, "config", "", "")
	flags.StringVar(&cluster.Kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&cluster.Context, "context", "", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp), err == nil && flags.NArg() == 1 && flags.Arg(0) == "help":
		fmt.Fprint(stdout, schemaUsage)
		return exitOK
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case dir == "":
		err = errors.New("-o FOLDER is missing")
	case file != "" && cluster != config.Cluster{}:
		err = errors.New("-config says which cluster it is: leave out -kubeconfig and -context")
	case file != "":
		cfg, problems := config.Load(file, policy)
		// Mistakes elsewhere do not matter here; some may be found only with the schemas.
		of := slices.DeleteFunc(slices.Clone(problems), func(p config.Problem) bool { return !strings.HasPrefix(p.Path, "cluster") })
		if cfg == nil {
			of = problems
		}
		if len(of) > 0 {
			return refuse("router schema pull", of, stderr)
		}
		cluster = cfg.Cluster
	}
	if err != nil {
		fmt.Fprintf(stderr, "router schema pull: %v\n", err)
		return exitUsage
	}
	path, n, err := compile.PullSchemas(ctx, cluster, policy, dir)
	if err != nil {
		fmt.Fprintf(stderr, "router schema pull: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%s: %d resources\n", path, n)
	return exitOK
}
