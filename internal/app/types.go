package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/schema"
)

// openAPITimeout is how long the API server may take to say what its resources look like, all together. Without an answer the router
// starts with what it knows by itself.
const openAPITimeout = 10 * time.Second

// connectTimeout is how long it may take to find out what the router may do in the cluster, and whether sinks can be reached.
const connectTimeout = time.Minute

// pullTimeout is how long it may take to read all the documents of a cluster; there is one for each group and version.
const pullTimeout = 2 * time.Minute

// schemas says what the objects of resources look like.
type schemas struct {
	set *schema.Set
	// ask gives the OpenAPI document of a group and version; nil: there is no cluster to ask.
	ask func(group, version string) ([]byte, error)
	// failed is why the cluster did not answer.
	failed error
	kept   *Plans // nil: nothing is kept
	saved  string // the folder that some of it was read from; empty: none was
}

func newSchemas(ask func(group, version string) ([]byte, error)) (*schemas, error) {
	set, err := schema.Builtin()
	return &schemas{set: set, ask: ask}, err
}

// savedSchemas knows what the folder of [PullSchemas] says, and what is built in beside that. An empty folder is none.
func savedSchemas(dir string) (*schemas, error) {
	s, err := newSchemas(nil)
	if err != nil || dir == "" {
		return s, err
	}
	set, err := schema.Load(dir)
	if err != nil {
		return nil, err
	}
	s.set.Merge(set)
	s.saved = dir
	return s, nil
}

// PullSchemas saves what the resources of a cluster look like, custom ones included, in a folder for use without the cluster. It returns
// the path of the file and how many resources are in it. The file is written only if the cluster told everything.
func PullSchemas(ctx context.Context, cluster config.Cluster, dir string) (path string, n int, err error) {
	client, err := informer.NewClient(cluster)
	if err != nil {
		return "", 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	versions, err := client.OpenAPIVersions(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("the cluster does not say what its resources look like: %w", err)
	}
	all := &schema.Set{}
	for _, gv := range versions {
		text, err := client.OpenAPI(ctx, gv.Group, gv.Version)
		if err == nil && text == nil {
			continue // gone meanwhile
		}
		found := &schema.Set{}
		if err == nil {
			found, err = schema.Parse(text)
		}
		if err != nil {
			return "", 0, fmt.Errorf("the cluster does not say what the resources of %s look like: %w; nothing was saved", gv, err)
		}
		all.Merge(found)
	}
	path, err = schema.Save(dir, all)
	if err != nil {
		return "", 0, fmt.Errorf("the schemas cannot be saved: %w", err)
	}
	return path, all.Len(), nil
}

// learn asks the cluster about the resources of the sources: those that are not known here, or all.
func (s *schemas) learn(cfg *config.Config, all bool) {
	type version struct{ group, version string }
	asked := make(map[version]bool)
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		group, v, resource, err := config.ParseResource(cfg.Sources[name].Resource)
		if _, known := s.set.Resource(group, v, resource); err != nil || s.ask == nil || asked[version{group, v}] || known && !all {
			continue
		}
		asked[version{group, v}] = true
		text, err := s.ask(group, v)
		if err == nil && text == nil {
			continue // what does not exist yet has no schema
		}
		found := &schema.Set{}
		if err == nil {
			found, err = schema.Parse(text)
		}
		if err != nil {
			s.failed = err
			return
		}
		s.set.Merge(found)
	}
}

// types returns what the objects of each source look like, as far as it is known, and warns of those that are not.
func (s *schemas) types(cfg *config.Config) (types map[string]*schema.Type, warnings config.Problems) {
	types = make(map[string]*schema.Type)
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		source := cfg.Sources[name]
		group, version, resource, err := config.ParseResource(source.Resource)
		if err != nil {
			continue // reported already
		}
		found, ok := s.set.Resource(group, version, resource)
		if !ok {
			warning := source.At("resource").Problemf("%s", s.unknown(source.Resource))
			warning.Warning = true
			warnings = append(warnings, warning)
			continue
		}
		types[name] = found.Type
		if source.Cache == config.CacheMetadata {
			types[name] = found.Type.Metadata()
		}
	}
	return types, warnings
}

func (s *schemas) unknown(resource string) string {
	what := fmt.Sprintf("what %s look like is not known, so the fields in expressions about them are not checked", resource)
	switch {
	case s.saved != "":
		return fmt.Sprintf("%s: they are not in %s; if the cluster has them, router schema pull -o %[2]s saves it anew", what, s.saved)
	case s.ask == nil:
		return what + ": router check -connect asks the cluster, router schema pull saves what it says"
	case s.failed != nil:
		return fmt.Sprintf("%s: the cluster did not say: %v", what, s.failed)
	}
	return what + ": the cluster does not have them (yet)"
}

// asking returns the function that asks a cluster for its OpenAPI documents, and one to call when all is asked.
func asking(ctx context.Context, client *informer.Client) (ask func(group, version string) ([]byte, error), done func()) {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	return func(group, version string) ([]byte, error) { return client.OpenAPI(ctx, group, version) }, cancel
}
