package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// CheckOptions says how thoroughly a configuration is checked.
type CheckOptions struct {
	// Connect: ask the cluster what its resources look like, rather than take what is built in or saved, and what the router may do there.
	Connect bool
	// Schemas is the folder of [PullSchemas]; empty: the one that the configuration names, if any.
	Schemas string
}

// Check reports every problem of the configuration file that can be found without running it, warnings at the end. It opens nothing
// but the file and what it names (guests' modules), and with Connect a connection to the cluster. The file is fine if nothing but
// warnings comes back.
func Check(ctx context.Context, path string, components Components, opts CheckOptions) (problems, warnings config.Problems) {
	cfg, problems := config.Load(path)
	if cfg == nil {
		return problems, nil
	}
	var ask func(group, version string) ([]byte, error)
	if opts.Connect {
		client, err := informer.NewClient(cfg.Cluster)
		if err != nil {
			return append(problems, config.Problem{File: path, Path: "cluster", Message: err.Error()}), nil
		}
		defer client.Close()
		var done func()
		ask, done = asking(ctx, client)
		defer done()
	}
	known, err := savedSchemas(map[bool]string{false: cmp.Or(opts.Schemas, cfg.Schemas)}[opts.Connect])
	if err != nil {
		return append(problems, config.Problem{File: path, Path: "schemas", Message: err.Error()}), nil
	}
	known.ask = ask
	known.learn(cfg, true)
	p, problems := planOf(ctx, cfg, problems, components, known, true)
	if known.failed != nil {
		problems = append(problems, config.Problem{
			File: path, Path: "cluster", Message: fmt.Sprintf("the cluster does not say what its resources look like: %v", known.failed),
		})
	}
	if p == nil {
		return problems, nil
	}
	warnings = slices.Concat(p.warnings, p.optional)
	if text, err := os.ReadFile(path); err == nil {
		warnings = notSilenced(warnings, text)
	}
	return problems, warnings
}
