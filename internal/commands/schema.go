package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/reference"
	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// schemaCommand prints the schema of the configuration, or saves those of a cluster.
func schemaCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "schema",
		Summary: "Print the JSON Schema of the configuration, or save the schemas of a cluster",
		Setup:   func(*cli.Flags) cli.Run { return printReference(made, reference.Schema) },
		Commands: []cli.Command{
			{
				Name:    "config",
				Summary: "Print the JSON Schema of the configuration, for editors; router schema alone does so too",
				Setup:   func(*cli.Flags) cli.Run { return printReference(made, reference.Schema) },
			},
			{
				Name:    "include",
				Summary: "Print the JSON Schema of an included file, for editors",
				Setup:   func(*cli.Flags) cli.Run { return printReference(made, reference.IncludeSchema) },
			},
			{
				Name:    "reference",
				Summary: "Print docs/CONFIG.md: each key of the configuration, in Markdown",
				Setup:   func(*cli.Flags) cli.Run { return printReference(made, reference.Reference) },
			},
			pullCommand(),
		},
	}
}

// printReference prints a text about the configuration.
func printReference(made compile.Components, text func(config.Kinds) []byte) cli.Run {
	return func(_ context.Context, s cli.Streams, _ []string) error {
		_, err := s.Out.Write(text(made.Kinds()))
		return err
	}
}

// pullCommand saves the schemas of a cluster.
func pullCommand() cli.Command {
	return cli.Command{
		Name:    "pull",
		Summary: "Save the schemas of the cluster's resources, for router check, test, explain and eval without a cluster",
		Description: `
These commands use the folder if schemas: FOLDER is in the configuration, or with -schemas FOLDER. It has the names and
types of the fields of all resources, custom ones included, and nothing else of the cluster.`,
		Examples: []cli.Example{
			{Line: "router schema pull -o schemas", Text: "from the cluster of the current context"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			p := &pull{}
			f.StringVar(&p.dir, "o", "", "`FOLDER` the folder to write to")
			f.StringVar(&p.config, "config", "", "`FILE` the configuration whose cluster is asked (default: none; the kubeconfig counts)")
			f.StringVar(&p.cluster.Kubeconfig, "kubeconfig", "", "`FILE` the kubeconfig (default: $KUBECONFIG, in-cluster, ~/.kube/config)")
			f.StringVar(&p.cluster.Context, "context", "", "`NAME` the context of the kubeconfig (default: the current one)")
			cli.PolicyFlags(f, &p.policy)
			return p.run
		},
	}
}

// pull saves the schemas of a cluster.
type pull struct {
	dir, config string
	cluster     config.Cluster
	policy      config.Policy
}

func (p *pull) run(ctx context.Context, s cli.Streams, _ []string) error {
	switch {
	case p.dir == "":
		return cli.Mistakef("-o FOLDER is missing")
	case p.config != "" && p.cluster != config.Cluster{}:
		return cli.Mistakef("-config names the cluster: leave out -kubeconfig and -context")
	case p.config != "":
		cfg, problems := config.Load(p.config, p.policy)
		// Mistakes elsewhere do not matter here; some may be found only with the schemas.
		of := slices.DeleteFunc(slices.Clone(problems), func(p config.Problem) bool { return !strings.HasPrefix(p.Path, "cluster") })
		if cfg == nil {
			of = problems
		}
		if len(of) > 0 {
			return of
		}
		p.cluster = cfg.Cluster
	}
	path, n, err := compile.PullSchemas(ctx, p.cluster, p.policy, p.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s: %d resources\n", path, n)
	return nil
}

// crdsCommand prints the CustomResourceDefinitions.
func crdsCommand() cli.Command {
	return cli.Command{
		Name:    "crds",
		Summary: "Print the CustomResourceDefinitions of routes and clusterroutes",
		Description: `
Their schemas are those of the routes of a configuration. Apply them again after an update of the router.`,
		Examples: []cli.Example{
			{Line: "router crds | kubectl apply --server-side -f -", Text: "install or update them"},
		},
		Setup: func(*cli.Flags) cli.Run {
			return func(_ context.Context, s cli.Streams, _ []string) error {
				text, err := crds.Manifests()
				if err != nil {
					return err
				}
				_, err = s.Out.Write(text)
				return err
			}
		},
	}
}
