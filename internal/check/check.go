// Package check finds the mistakes in a configuration, and the rights that the router lacks in its
// cluster. It opens no sink. It runs only the handlers that a kind loads for the check.
package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/config/files"
	"github.com/deltarouter/deltarouter/internal/crds"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/kubestatus"
	"github.com/deltarouter/deltarouter/internal/otlpconn"
	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// Options sets how thoroughly a configuration is checked.
type Options struct {
	// Connect asks the cluster for the schemas of its resources, instead of using built-in or saved
	// ones, and for the router's rights. It also tests whether sinks can be reached.
	Connect bool
	// Schemas is a folder of [PullSchemas]; empty: the folder that the configuration names, if any.
	Schemas string
	// Folders has the folders of schemas that former checks have read; nil: none.
	Folders *compile.SavedFolders
	// Cache is the folder for compiled modules; empty: they are compiled for this check.
	Cache string
}

// Findings is the result of a check. The configuration is valid if there are no problems.
type Findings struct {
	Problems, Warnings config.Problems
	// Roles are YAML manifests for kubectl apply with the rights that the router lacks; empty: none
	// is missing, or Connect was not set.
	Roles string
	// NATS are the permissions that the processes of the fleet need in NATS, as they stand in the
	// configuration of a server; empty: there is no fleet, or Connect was not set.
	NATS string
	// Kept has the sources with `cache: auto`, if there are no problems.
	Kept []Kept
	// Durable has the routes with deltas that wait for the disk, if there are no problems.
	Durable Durable
}

// File finds all problems of a configuration file that can be found without running it. It opens
// only the file and the files that it names (it starts an instance of each guest's module), and
// with Connect connections to the cluster and to the destinations of sinks. It never runs a native
// plugin.
func File(ctx context.Context, path string, components compile.Components, opts Options) (found Findings) {
	cfg, problems := config.Load(path, components.Policy)
	path = files.Name(path)
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
	if opts.Folders == nil {
		opts.Folders = new(compile.SavedFolders)
	}
	known, err := opts.Folders.Schemas(saved)
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
	if p != nil {
		found.Problems = append(found.Problems, p.Mistakes()...)
	}
	if known.Failed != nil {
		fail("cluster", "the schemas of the cluster cannot be read: %v", known.Failed)
	}
	found.load(ctx, cfg, components.Handlers, opts.Cache, plugins.Modules{Dir: compile.ModulesOf(cfg.State), Offline: !opts.Connect})
	found.Problems = found.Problems.Sorted()
	if p == nil {
		return found
	}
	if len(found.Problems) == 0 {
		found.Warnings = append(found.Warnings, p.Notes()...)
		found.Kept, found.Durable = keptOf(p), durableOf(p)
	} else {
		found.Warnings = slices.Concat(found.Warnings, p.Warnings, p.Optional)
	}
	if client != nil {
		found.connect(ctx, path, client, p, components, known.Failed)
	} else {
		found.Warnings = append(found.Warnings, conditional(rbac.Of(p.Config, components, ""))...)
	}
	found.Warnings = compile.NotSilenced(found.Warnings, cfg)
	return found
}

// connect adds the findings about the cluster and the destinations of sinks. reported is the reason
// why the cluster does not answer that is a problem already; nil: there is none.
func (f *Findings) connect(ctx context.Context, path string, client *informer.Client, p *compile.Plan, components compile.Components, reported error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	valid := len(f.Problems) == 0
	pod, _ := kubestatus.PodFromEnv()
	f.Problems = append(f.Problems, unwatchable(ctx, client, p.Config)...)
	f.Problems = append(f.Problems, definitions(ctx, path, client, &p.Config.CustomResources)...)
	access := Access(ctx, client, undecided(rbac.Of(p.Config, components, pod.Namespace), p.Config), path)
	f.Roles = access.Roles
	f.Problems = append(f.Problems, access.Problems...)
	f.Warnings = append(f.Warnings, slices.DeleteFunc(access.Warnings, func(w config.Problem) bool {
		return reported != nil && strings.HasSuffix(w.Message, reported.Error())
	})...)
	f.Warnings = append(f.Warnings, emptySelectors(ctx, client, p.Config)...)
	if valid { // kinds cannot interpret an invalid configuration
		f.Warnings = append(f.Warnings, probeAll(ctx, p.Config.Handlers, components.Handlers)...)
		f.Warnings = append(f.Warnings, probeAll(ctx, p.Config.Sinks, components.Sinks)...)
		f.Warnings = append(f.Warnings, tooSmall(ctx, p.Config, components.Sinks)...)
		f.Warnings = append(f.Warnings, probeTraces(ctx, p.Config.Traces)...)
		f.probeFleet(ctx, p.Config)
	}
}

// probeAll finds the components whose destinations cannot be reached, all at the same time.
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

// probeTraces finds whether the receiver of traces can be reached; c is nil if there is none.
func probeTraces(ctx context.Context, c *config.Traces) config.Problems {
	if c == nil {
		return nil
	}
	err := otlpconn.OfTraces(c).Probe(ctx)
	if err == nil {
		return nil
	}
	w := c.Problemf("it cannot be reached now: %v", err)
	w.Warning = true
	return config.Problems{w}
}

// probeFleet adds the findings about the NATS servers of a fleet.
func (f *Findings) probeFleet(ctx context.Context, cfg *config.Config) {
	if cfg.Fleet == nil {
		return
	}
	roles, who := []fleet.Role{fleet.Member}, "leader and the standby"
	if slices.ContainsFunc(cfg.Routes, func(r *config.Route) bool { return r.Workers != nil }) {
		roles, who = append(roles, fleet.Worker), "leader, the standby and the workers"
	}
	f.NATS = fmt.Sprintf("# The permissions of the %s in NATS, for the configuration of a server:\n%s", who, fleet.Permissions(fleet.NamesOf(cfg.Fleet.Name), roles...))
	at := cfg.Fleet.NATS.Node
	found, err := fleet.Probe(ctx, cfg.Fleet, roles...)
	if err != nil {
		found.Warnings = append(found.Warnings, fmt.Sprintf("it cannot be reached now: %v", err))
	}
	for _, text := range found.Mistakes {
		f.Problems = append(f.Problems, at.Problemf("%s", text))
	}
	for _, text := range found.Warnings {
		w := at.Problemf("%s", text)
		w.Warning = true
		f.Warnings = append(f.Warnings, w)
	}
}

// connectTimeout bounds the requests for rights and the probes of sinks together.
const connectTimeout = time.Minute

// definitions reports that the cluster lacks the definitions of the objects that are granted
// something.
func definitions(ctx context.Context, path string, client *informer.Client, granted *config.CustomResources) config.Problems {
	if granted.Routes == nil && granted.ClusterRoutes == nil {
		return nil
	}
	if served, err := client.OpenAPI(ctx, crds.Group, crds.Version); err != nil || served != nil {
		return nil // an error is reported with the rights
	}
	return config.Problems{{
		File: path, Path: "customResources",
		Message: "the cluster does not have these resources: apply their definitions with router crds | kubectl apply --server-side -f -",
	}}
}
