package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// CheckOptions says how thoroughly a configuration is checked.
type CheckOptions struct {
	Connect bool // ask the cluster what its resources look like, rather than only take what is built in
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
	known, err := newSchemas(ask)
	if err != nil {
		return append(problems, config.Problem{File: path, Message: err.Error()}), nil
	}
	known.learn(cfg, true)
	p, problems := planOf(cfg, problems, components, known, true)
	if known.failed != nil {
		problems = append(problems, config.Problem{
			File: path, Path: "cluster", Message: fmt.Sprintf("the cluster does not say what its resources look like: %v", known.failed),
		})
	}
	if p == nil {
		return problems, nil
	}
	return problems, slices.Concat(p.warnings, p.optional)
}
