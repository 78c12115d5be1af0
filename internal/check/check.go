// Package check finds what is wrong with a configuration, and what the router may do in its
// cluster. It opens no sink and runs no handler but those that a kind loads for the check.
package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Options says how thoroughly a configuration is checked.
type Options struct {
	// Connect: ask the cluster what its resources look like, rather than take what is built in or
	// saved, and what the router may do there; and find out whether sinks can be reached.
	Connect bool
	// Schemas is the folder of [PullSchemas]; empty: the one that the configuration names, if any.
	Schemas string
}

// Findings is what [Check] finds. The configuration is fine if there are no problems.
type Findings struct {
	Problems, Warnings config.Problems
	// Roles is what the router lacks of rights in the cluster, in YAML for kubectl apply; empty:
	// nothing, or it was not asked for.
	Roles string
}

// File finds every problem of the configuration file that can be found without running it. It opens
// nothing but the file and what it names (guests' modules, of each of which an instance is
// started), and with Connect connections to the cluster and to what sinks write to. It runs no
// native plugin.
func File(ctx context.Context, path string, components compile.Components, opts Options) (found Findings) {
	cfg, problems := config.Load(path, components.Policy)
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
		if client, err = informer.NewClient(cfg.Cluster, cfg.Policy); err != nil {
			fail("cluster", "%v", err)
			return found
		}
		defer client.Close()
	}
	known, err := compile.SavedSchemas(saved)
	if err != nil {
		fail("schemas", "%v", err)
		return found
	}
	if client != nil {
		var done func()
		known.Ask, done = compile.AskCluster(ctx, client)
		defer done()
	}
	known.Learn(cfg, true)
	p, problems := compile.NewPlan(ctx, cfg, problems, components, known, true)
	found.Problems = problems
	if known.Failed != nil {
		fail("cluster", "the cluster does not say what its resources look like: %v", known.Failed)
	}
	found.load(ctx, cfg, components.Handlers)
	found.Problems = found.Problems.Sorted()
	if p == nil {
		return found
	}
	found.Warnings = slices.Concat(found.Warnings, p.Warnings, p.Optional)
	if len(found.Problems) == 0 {
		found.Warnings = append(found.Warnings, cfg.MissingSecrets()...)
	}
	if client != nil {
		found.connect(ctx, path, client, p, components)
	}
	if text, err := os.ReadFile(path); err == nil {
		found.Warnings = compile.NotSilenced(found.Warnings, text)
	}
	return found
}

// connect adds what is found where the configuration leads.
func (f *Findings) connect(ctx context.Context, path string, client *informer.Client, p *compile.Plan, components compile.Components) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	a := checkAccess(ctx, client, p, components)
	f.Roles = a.roles(ctx, path)
	for i := range a.warnings {
		a.warnings[i].File = path
	}
	f.Problems = append(f.Problems, a.problems...)
	f.Warnings = append(f.Warnings, a.warnings...)
	if len(f.Problems) == len(a.problems) { // a kind understands what it is given
		f.Warnings = append(f.Warnings, probeAll(ctx, p.Config.Handlers, components.Handlers)...)
		f.Warnings = append(f.Warnings, probeAll(ctx, p.Config.Sinks, components.Sinks)...)
	}
}

// probeAll finds out which components lead nowhere, all at the same time.
func probeAll[T, E any](ctx context.Context, configured map[string]*config.Component, kinds []plugins.Kind[T, E]) (warnings config.Problems) {
	names := slices.Sorted(maps.Keys(configured))
	failed := make([]error, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		c := configured[name]
		if kind, ok := compile.KindOf(kinds, c.Kind).(plugins.Prober); ok {
			wait.Go(func() { failed[i] = kind.Probe(ctx, c.Config) })
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

// connectTimeout is how long it may take to find out what the router may do in the cluster, and
// whether sinks can be reached.
const connectTimeout = time.Minute
