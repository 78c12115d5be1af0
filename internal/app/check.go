package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// CheckOptions says how thoroughly a configuration is checked.
type CheckOptions struct {
	// Connect: ask the cluster what its resources look like, rather than take what is built in or saved, and what the router may do
	// there; and find out whether sinks can be reached.
	Connect bool
	// Schemas is the folder of [PullSchemas]; empty: the one that the configuration names, if any.
	Schemas string
}

// Findings is what [Check] finds. The configuration is fine if there are no problems.
type Findings struct {
	Problems, Warnings config.Problems
	// Roles is what the router lacks of rights in the cluster, in YAML for kubectl apply; empty: nothing, or it was not asked for.
	Roles string
}

// Check finds every problem of the configuration file that can be found without running it. It opens nothing but the file and what it
// names (guests' modules), and with Connect connections to the cluster and to what sinks write to.
func Check(ctx context.Context, path string, components Components, opts CheckOptions) (found Findings) {
	cfg, problems := config.Load(path)
	found.Problems = problems
	if cfg == nil {
		return found
	}
	fail := func(part, format string, args ...any) {
		found.Problems = append(found.Problems, config.Problem{File: path, Path: part, Message: fmt.Sprintf(format, args...)})
	}
	saved := cmp.Or(opts.Schemas, cfg.Schemas)
	var client *informer.Client
	if opts.Connect {
		saved = ""
		var err error
		if client, err = informer.NewClient(cfg.Cluster); err != nil {
			fail("cluster", "%v", err)
			return found
		}
		defer client.Close()
	}
	known, err := savedSchemas(saved)
	if err != nil {
		fail("schemas", "%v", err)
		return found
	}
	if client != nil {
		var done func()
		known.ask, done = asking(ctx, client)
		defer done()
	}
	known.learn(cfg, true)
	p, problems := planOf(ctx, cfg, problems, components, known, true)
	found.Problems = problems
	if known.failed != nil {
		fail("cluster", "the cluster does not say what its resources look like: %v", known.failed)
	}
	if p == nil {
		return found
	}
	found.Warnings = slices.Concat(p.warnings, p.optional)
	if client != nil {
		found.connect(ctx, path, client, p, components)
	}
	if text, err := os.ReadFile(path); err == nil {
		found.Warnings = notSilenced(found.Warnings, text)
	}
	return found
}

// connect adds what is found where the configuration leads.
func (f *Findings) connect(ctx context.Context, path string, client *informer.Client, p *plan, components Components) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	a := checkAccess(ctx, client, p, components)
	f.Roles = a.roles(ctx, path)
	for i := range a.warnings {
		a.warnings[i].File = path
	}
	f.Problems = append(f.Problems, a.problems...)
	f.Warnings = append(f.Warnings, a.warnings...)
	if len(f.Problems) == len(a.problems) { // a factory understands what it is given
		f.Warnings = append(f.Warnings, probeAll(ctx, p.config.Handlers, components.Handlers)...)
		f.Warnings = append(f.Warnings, probeAll(ctx, p.config.Sinks, components.Sinks)...)
	}
}

// probeAll finds out which components lead nowhere, all at the same time.
func probeAll[T any](ctx context.Context, configured map[string]*config.Component, factories []plugins.Factory[T]) (warnings config.Problems) {
	names := slices.Sorted(maps.Keys(configured))
	failed := make([]error, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		c := configured[name]
		if f := factoryOf(factories, c.Kind); f != nil && f.Probe != nil {
			wait.Go(func() { failed[i] = f.Probe(ctx, c.Config) })
		}
	}
	wait.Wait()
	for i, name := range names {
		if failed[i] != nil {
			w := configured[name].Node.Problemf("it cannot be reached now: %v", failed[i])
			w.Warning = true
			warnings = append(warnings, w)
		}
	}
	return warnings
}
