package compile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/internal/cel"
	"github.com/deltarouter/deltarouter/internal/cel/schema"
	"github.com/deltarouter/deltarouter/internal/similar"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// openAPITimeout bounds all requests for the API server's schemas together. Without an answer the
// router starts with its built-in schemas.
const openAPITimeout = 10 * time.Second

// pullTimeout bounds the time for reading all documents of a cluster, one for each group and
// version.
const pullTimeout = 2 * time.Minute

// Schemas knows the types of the objects of resources.
type Schemas struct {
	Set *schema.Set
	// Ask requests the OpenAPI document of a group and version; nil: there is no cluster.
	Ask func(group, version string) ([]byte, error)
	// Failed is the reason why the cluster did not answer.
	Failed error
	exprs  *Expressions // nil: none yet
	saved  string       // the folder of the saved schemas; empty: none
}

// expressions begins a plan.
func (s *Schemas) expressions() *Expressions {
	if s.exprs == nil {
		s.exprs = new(Expressions)
	}
	s.exprs.begin()
	return s.exprs
}

func newSchemas(ask func(group, version string) ([]byte, error)) (*Schemas, error) {
	set, err := schema.Builtin()
	return &Schemas{Set: set, Ask: ask}, err
}

// SavedSchemas knows the schemas in a folder of [PullSchemas] and the built-in ones. An empty name
// means no folder.
func SavedSchemas(dir string) (*Schemas, error) { return new(SavedFolders).Schemas(dir) }

// SavedFolders reads each folder of saved schemas once, for a check of many configurations that
// name the same one. The zero value has read none. It is not safe for concurrent use.
type SavedFolders struct{ sets map[string]*schema.Set }

// Schemas is [SavedSchemas].
func (k *SavedFolders) Schemas(dir string) (*Schemas, error) {
	s, err := newSchemas(nil)
	if err != nil || dir == "" {
		return s, err
	}
	set := k.sets[dir]
	if set == nil {
		if set, err = schema.Load(dir); err != nil {
			return nil, err
		}
		if k.sets == nil {
			k.sets = make(map[string]*schema.Set)
		}
		k.sets[dir] = set
	}
	s.Set.Merge(set)
	s.saved = dir
	return s, nil
}

// PullSchemas saves the schemas of a cluster's resources, including custom ones, in a folder for
// use without the cluster. It returns the path of the file and the number of resources. It writes
// the file only if all requests succeed.
func PullSchemas(ctx context.Context, cluster config.Cluster, policy config.Policy, dir string) (path string, n int, err error) {
	client, err := informer.NewClient(cluster, policy)
	if err != nil {
		return "", 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	versions, err := client.OpenAPIVersions(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("the schemas of the cluster cannot be read: %w", Unanswered(client, err))
	}
	all := &schema.Set{}
	for _, gv := range versions {
		text, err := client.OpenAPI(ctx, gv.Group, gv.Version)
		if err == nil && text == nil {
			continue // deleted meanwhile
		}
		found := &schema.Set{}
		if err == nil {
			found, err = schema.Parse(text)
		}
		if err != nil {
			return "", 0, fmt.Errorf("the schemas of %s cannot be read: %w; nothing was saved", gv, Unanswered(client, err))
		}
		all.Merge(found)
	}
	path, err = schema.Save(dir, all)
	if err != nil {
		return "", 0, fmt.Errorf("the schemas cannot be saved: %w", err)
	}
	return path, all.Len(), nil
}

// Learn asks the cluster for the schemas of the sources' resources: of unknown ones, or of all.
func (s *Schemas) Learn(cfg *config.Config, all bool) {
	type version struct{ group, version string }
	asked := make(map[version]bool)
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		group, v, resource, err := config.ParseResource(cfg.Sources[name].Resource)
		if _, known := s.Set.Resource(group, v, resource); err != nil || s.Ask == nil || asked[version{group, v}] || known && !all {
			continue
		}
		asked[version{group, v}] = true
		text, err := s.Ask(group, v)
		if err == nil && text == nil {
			continue // a resource that does not exist yet has no schema
		}
		found := &schema.Set{}
		if err == nil {
			found, err = schema.Parse(text)
		}
		if err != nil {
			s.Failed = err
			return
		}
		s.Set.Merge(found)
	}
}

// Types returns the types of the sources' objects as far as they are known, and warns of the
// others. An unknown resource with nearly the name of a known one is a problem if its group belongs
// to Kubernetes itself. With check, every resource that the cluster does not have is a problem.
func (s *Schemas) Types(cfg *config.Config, check bool) (types map[string]*schema.Type, problems, warnings config.Problems) {
	types = make(map[string]*schema.Type)
	for _, name := range slices.Sorted(maps.Keys(cfg.Sources)) {
		source := cfg.Sources[name]
		group, version, resource, err := config.ParseResource(source.Resource)
		if err != nil {
			continue // reported before
		}
		found, ok := s.Set.Resource(group, version, resource)
		if !ok {
			nearest, certain := s.nearest(group, version, resource)
			if certain = certain || check && s.Ask != nil && s.Failed == nil; certain && nearest != "" {
				problems = append(problems, source.At("resource").Problemf("there is no %s; did you mean %q?", source.Resource, nearest))
				continue
			}
			warning := source.At("resource").Problemf("%s", s.unknown(source.Resource))
			if nearest != "" {
				warning.Message += fmt.Sprintf("; did you mean %q?", nearest)
			}
			warning.Warning = true
			warnings = append(warnings, warning)
			continue
		}
		types[name] = found.Type
		if source.Cache == config.CacheMetadata {
			types[name] = found.Type.Metadata()
		}
	}
	return types, problems, warnings
}

// nearest returns a known resource whose name is nearly that of an unknown one, or "". The result
// is certain if both are in a group of Kubernetes itself: another version of the API server has
// more or fewer versions of a group, but hardly a resource of nearly the same name.
func (s *Schemas) nearest(group, version, resource string) (nearest string, certain bool) {
	var beside []string // in the same version of the group
	var elsewhere, otherVersion string
	s.Set.Each(func(g, v, r string, _ schema.Resource) {
		switch {
		case g == group && v == version:
			beside = append(beside, r)
		case g == group && r == resource:
			otherVersion = nameOf(g, v, r)
		case r == resource && isBuiltIn(g) && isBuiltIn(group) && (elsewhere == "" || v == version):
			elsewhere = nameOf(g, v, r)
		}
	})
	if near, ok := similar.Nearest(resource, beside); ok && otherVersion == "" && elsewhere == "" {
		return nameOf(group, version, near), isBuiltIn(group)
	}
	if otherVersion != "" {
		return otherVersion, false
	}
	return elsewhere, len(beside) > 0
}

func nameOf(group, version, resource string) string {
	if group == "" {
		return version + "/" + resource
	}
	return group + "/" + version + "/" + resource
}

// isBuiltIn reports whether a group belongs to Kubernetes itself.
func isBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

func (s *Schemas) unknown(resource string) string {
	what := fmt.Sprintf("the schema of %s is unknown, so the fields in expressions about it are not checked", resource)
	switch {
	case s.saved != "":
		return fmt.Sprintf("%s: it is not in %s; if the cluster has it, router schema pull -o %[2]s saves it", what, s.saved)
	case s.Ask == nil:
		return what + ": router check -connect asks the cluster for it, router schema pull saves it"
	case s.Failed != nil:
		return fmt.Sprintf("%s: the schemas of the cluster cannot be read: %v", what, s.Failed)
	}
	return what + ": the cluster does not have it (yet)"
}

// AskCluster returns a function that requests a cluster's OpenAPI documents, and one to call after
// the last request. The errors of the function are those of [Unanswered].
func AskCluster(ctx context.Context, client *informer.Client) (ask func(group, version string) ([]byte, error), done func()) {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	return func(group, version string) ([]byte, error) {
		text, err := client.OpenAPI(ctx, group, version)
		if err != nil {
			err = Unanswered(client, err)
		}
		return text, err
	}, cancel
}

// controllers are the built-in resources whose objects control others. An expression with
// controller() waits for these sources only.
func controllers() []string {
	return []string{
		"v1/nodes", "v1/pods", "v1/replicationcontrollers", "v1/services", "apps/v1/daemonsets", "apps/v1/deployments",
		"apps/v1/replicasets", "apps/v1/statefulsets", "batch/v1/cronjobs", "batch/v1/jobs",
	}
}

// Owners returns the sources whose objects may control others: those of controllers() and all
// custom resources.
func (s *Schemas) Owners(cfg *config.Config) map[string]cel.Owner {
	owners := make(map[string]cel.Owner)
	for name, source := range cfg.Sources {
		group, version, resource, err := config.ParseResource(source.Resource)
		if err != nil || source.Cache == config.CacheIdentity || isBuiltIn(group) && !slices.Contains(controllers(), source.Resource) {
			continue
		}
		known, _ := s.Set.Resource(group, version, resource)
		owners[name] = cel.Owner{Group: group, Kind: known.Kind, Resource: resource}
	}
	return owners
}

// Environment returns the sources, indexes and types for the compilation of the expressions of a
// configuration, or of a fragment. types and owners may have further sources.
func Environment(cfg *config.Config, types map[string]*schema.Type, owners map[string]cel.Owner) cel.EnvConfig {
	env := cel.EnvConfig{
		Cluster: cfg.Cluster.Name, Define: make(map[string]string), Sources: make(map[string][]string), Types: maps.Clone(types),
		Owners: maps.Clone(owners), ManagedFields: make(map[string]bool), Missing: cfg.MissingSource,
	}
	maps.DeleteFunc(env.Types, func(source string, _ *schema.Type) bool { return cfg.Sources[source] == nil })
	maps.DeleteFunc(env.Owners, func(source string, _ cel.Owner) bool { return cfg.Sources[source] == nil })
	for name, e := range cfg.Define {
		env.Define[name] = e.Text
	}
	for name, s := range cfg.Sources {
		env.Sources[name] = append(index.Builtins(), slices.Sorted(maps.Keys(s.Indexes))...)
		env.ManagedFields[name] = s.ManagedFields
	}
	return env
}

// Unanswered describes why the API server did not answer a request of client, with the remedy. It
// returns other errors unchanged.
func Unanswered(client *informer.Client, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the API server %s cannot be reached: %w; check the address, and cluster.kubeconfig and cluster.context",
			client.Host(), plugins.Transport(failed.Err))
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return err
	}
	switch status.Status().Code {
	case http.StatusUnauthorized:
		return fmt.Errorf("the API server %s refuses the credentials (401): renew the token or the certificate of the kubeconfig", client.Host())
	case http.StatusForbidden:
		return fmt.Errorf("the API server %s refuses the request (403): %w", client.Host(), err)
	default:
		return fmt.Errorf("the API server %s answers: %w", client.Host(), err)
	}
}
