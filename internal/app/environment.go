package app

import (
	"maps"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/expr"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// controllers are the built-in resources whose objects control others. An expression with controller() need not wait for the rest.
func controllers() []string {
	return []string{
		"v1/nodes", "v1/pods", "v1/replicationcontrollers", "v1/services", "apps/v1/daemonsets", "apps/v1/deployments",
		"apps/v1/replicasets", "apps/v1/statefulsets", "batch/v1/cronjobs", "batch/v1/jobs",
	}
}

// owners returns the sources whose objects may control others, as controllers() says, and all custom resources.
func (s *schemas) owners(cfg *config.Config) map[string]expr.Owner {
	owners := make(map[string]expr.Owner)
	for name, source := range cfg.Sources {
		group, version, resource, err := config.ParseResource(source.Resource)
		builtIn := !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
		if err != nil || source.Cache == config.CacheIdentity || builtIn && !slices.Contains(controllers(), source.Resource) {
			continue
		}
		known, _ := s.set.Resource(group, version, resource)
		owners[name] = expr.Owner{Group: group, Kind: known.Kind, Resource: resource}
	}
	return owners
}

// environment tells the expressions which sources and indexes exist, and what their objects look like.
func environment(cfg *config.Config, types map[string]*schema.Type, owners map[string]expr.Owner) expr.EnvConfig {
	env := expr.EnvConfig{
		Cluster: cfg.Cluster.Name, Define: make(map[string]string), Sources: make(map[string][]string), Types: types,
		Owners: owners, ManagedFields: make(map[string]bool),
	}
	for name, e := range cfg.Define {
		env.Define[name] = e.Text
	}
	for name, s := range cfg.Sources {
		env.Sources[name] = append(index.Builtins(), slices.Sorted(maps.Keys(s.Indexes))...)
		env.ManagedFields[name] = s.ManagedFields
	}
	return env
}
