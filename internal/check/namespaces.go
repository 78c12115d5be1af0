package check

import (
	"context"
	"maps"
	"slices"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// emptySelectors warns of each namespaceSelector that selects no namespace at the moment. It skips
// those that the API server does not answer for: their rights are checked by themselves.
func emptySelectors(ctx context.Context, client *informer.Client, cfg *config.Config) (warnings config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		s := cfg.Sources[name]
		if s.NamespaceSelector == "" {
			continue
		}
		if found, err := client.AnyNamespace(ctx, s.NamespaceSelector); err == nil && !found {
			w := s.At("namespaceSelector").Problemf("no namespace has these labels now: check the labels, as with kubectl get namespaces -l %q",
				s.NamespaceSelector)
			w.Warning = true
			warnings = append(warnings, w)
		}
	}
	return warnings
}

// unwatchable reports the sources that the API server cannot watch, whatever the rights.
func unwatchable(ctx context.Context, client *informer.Client, cfg *config.Config) (problems config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		s := cfg.Sources[name]
		specs, err := informer.SpecsOf(s)
		if err != nil {
			continue // a mistake that is reported anyway
		}
		if key, why := client.CannotWatch(ctx, &specs[0]); key != "" {
			problems = append(problems, s.At(key).Problemf("%s", why))
		}
	}
	return problems
}
