package informer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Spec describes a watch: the resource, its selection, and the format of its objects. Specs are
// comparable: sources with equal Specs can share a watch.
type Spec struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty: all, or a resource without namespaces
	// NamespaceSelector restricts the watch to the objects in the namespaces with these labels, see
	// [Spec.Namespaces]. Namespace is then empty.
	NamespaceSelector string
	LabelSelector     string
	FieldSelector     string
	Cache             string // config.CacheFull (also if empty), CacheMetadata or CacheIdentity
	ManagedFields     bool   // keep metadata.managedFields
	Secrets           bool   // keep the data of v1/secrets
	// Drop has the paths that are removed from every object, sorted and joined by newlines; see
	// [JoinDrop].
	Drop string
}

// Source names the deltas of a watch.
type Source struct {
	Name string
	// Resync is the interval at which every cached object is emitted again as Sync; 0: never.
	Resync time.Duration
}

// ID returns the name of the watch in a checkpoint. It is the same in every run, and differs if the
// objects or their texts would differ.
func (s Spec) ID() string {
	if s.Cache == "" {
		s.Cache = config.CacheFull
	}
	parts := []string{
		s.Resource.Group, s.Resource.Version, s.Resource.Resource, s.Namespace, s.LabelSelector, s.FieldSelector, s.Cache,
		strconv.FormatBool(s.ManagedFields), strconv.FormatBool(s.Secrets), s.Drop,
	}
	if s.NamespaceSelector != "" { // the IDs of other watches stay as they were before it existed
		parts = append(parts, s.NamespaceSelector)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// SpecsOf returns the Specs of a configured source: one, or one per namespace.
func SpecsOf(source *config.Source) ([]Spec, error) {
	gvr, err := parseResource(source.Resource)
	if err != nil {
		return nil, err
	}
	drop, err := JoinDrop(source.ExcludeFields)
	if err != nil {
		return nil, err
	}
	spec := Spec{
		Resource: gvr, NamespaceSelector: source.NamespaceSelector, LabelSelector: source.LabelSelector, FieldSelector: source.FieldSelector, Cache: source.Cache,
		ManagedFields: source.ManagedFields, Secrets: source.Secrets, Drop: drop,
	}
	if spec.Cache == config.CacheFull {
		spec.Cache = "" // the default, so that equal Specs are equal
	}
	if len(source.Namespaces) == 0 {
		return []Spec{spec}, nil
	}
	var specs []Spec
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(source.Namespaces))) {
		spec.Namespace = namespace
		specs = append(specs, spec)
	}
	return specs, nil
}

// Namespaces returns the Spec of the watch that finds the namespaces of a watch with a
// NamespaceSelector; ok is false for another watch. Watches with equal selectors share it.
func (s *Spec) Namespaces() (of Spec, ok bool) {
	if s.NamespaceSelector == "" {
		return Spec{}, false
	}
	return Spec{
		Resource:      schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		LabelSelector: s.NamespaceSelector, Cache: config.CacheMetadata,
	}, true
}

// parseResource parses [group/]version/resource, as in v1/pods or apps/v1/deployments.
func parseResource(s string) (schema.GroupVersionResource, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return schema.GroupVersionResource{}, fmt.Errorf("resource %q: want [group/]version/resource, as in v1/pods or apps/v1/deployments", s)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
}

// JoinDrop checks paths to drop and joins them for [Spec].Drop. A path is keys joined by dots, as
// in status.conditions; a key that contains dots is written
// metadata.annotations["example.com/key"]. A path that meets a list continues in every element.
// Fields that identify an object cannot be dropped.
func JoinDrop(paths []string) (string, error) {
	for _, path := range paths {
		keys, err := parsePath(path)
		if err != nil {
			return "", err
		}
		if isIdentity(keys) {
			return "", fmt.Errorf("excludeFields: %s identifies the object and cannot be excluded", path)
		}
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(paths))), "\n"), nil
}

// parsePath splits a path into its keys.
func parsePath(path string) (keys []string, err error) {
	rest := path
	for {
		// A key with dots is quoted in brackets, without a dot before them.
		var key string
		if strings.HasPrefix(rest, "[") {
			key, rest, err = quotedKey(path, rest)
			if err != nil {
				return nil, err
			}
		} else {
			n := strings.IndexAny(rest, ".[")
			if n < 0 {
				n = len(rest)
			}
			key, rest = rest[:n], rest[n:]
		}
		if key == "" || strings.ContainsAny(key, "\n") { // JoinDrop joins paths by newlines
			return nil, fmt.Errorf(`excludeFields: %q is no path: want keys joined by dots, as in status.conditions or metadata.annotations["a.b/c"]`, path)
		}
		keys = append(keys, key)
		if rest == "" {
			return keys, nil
		}
		if rest[0] == '.' {
			rest = rest[1:]
		}
	}
}

// quotedKey reads ["key"] at the start of rest.
func quotedKey(path, rest string) (key, after string, err error) {
	if len(rest) > 2 && (rest[1] == '"' || rest[1] == '\'') {
		if end := strings.Index(rest[2:], rest[1:2]+"]"); end >= 0 {
			return rest[2 : 2+end], rest[2+end+2:], nil
		}
	}
	return "", "", fmt.Errorf(`excludeFields: %q: after [ comes a quoted key and ], as in metadata.annotations["a.b/c"]`, path)
}

func isIdentity(keys []string) bool {
	switch strings.Join(keys, ".") {
	case "apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion":
		return true
	}
	return false
}

// format returns the format in which the objects are kept.
func (s *Spec) format() *wire.Format {
	format := &wire.Format{MetadataOnly: s.metadataOnly(), Drop: s.dropped()}
	if s.redacted() {
		format.Annotations = SecretAnnotations()
	}
	return format
}

// identityFormat returns the format that keeps only the identity of the objects.
func (s *Spec) identityFormat() *wire.Format {
	return (&Spec{Resource: s.Resource, Cache: config.CacheMetadata}).format()
}

// Keep decodes the JSON text of an object into the format of a watch of this Spec. The error never
// quotes the text.
func Keep(spec Spec, cluster, text string) (*event.Object, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, err
	}
	resource := &event.Resource{GroupVersionResource: spec.Resource, Cluster: cluster, Kind: rawjson.Trim(text).Get("kind").Str()}
	return wire.NewDecoder(spec.format(), resource).Keep(text)
}

// dropped returns the paths that the Spec drops, as keys.
func (s *Spec) dropped() (paths [][]string) {
	if !s.ManagedFields {
		paths = append(paths, []string{"metadata", "managedFields"})
	}
	if s.redacted() {
		paths = append(paths, []string{"data"}, []string{"stringData"})
	}
	for path := range strings.SplitSeq(s.Drop, "\n") {
		if keys, err := parsePath(path); err == nil && !isIdentity(keys) {
			paths = append(paths, keys)
		}
	}
	return paths
}

// redacted reports whether confidential data must be removed. The objects then keep only
// annotations that are known to contain none, see SecretAnnotations.
func (s *Spec) redacted() bool {
	return s.Resource.Group == "" && s.Resource.Resource == "secrets" && !s.Secrets
}

// SecretAnnotations returns the annotations of a Secret that are known to describe its origin and
// purpose and not its data. Tools keep whole copies of the objects that they apply in their own
// annotations (kubectl, kapp, Rancher, Banzai Cloud's operators), and some keep hashes, from which
// short values can be guessed. All other annotations are therefore treated as confidential.
func SecretAnnotations() []string {
	return []string{
		wire.Unreadable,
		"kubernetes.io/service-account.name", "kubernetes.io/service-account.uid",
		"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "helm.sh/resource-policy", "helm.sh/hook",
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/sync-wave",
		"kustomize.toolkit.fluxcd.io/prune", "kustomize.toolkit.fluxcd.io/reconcile",
		"cert-manager.io/alt-names", "cert-manager.io/certificate-name", "cert-manager.io/common-name", "cert-manager.io/ip-sans",
		"cert-manager.io/issuer-group", "cert-manager.io/issuer-kind", "cert-manager.io/issuer-name", "cert-manager.io/uri-sans",
		"sealedsecrets.bitnami.com/cluster-wide", "sealedsecrets.bitnami.com/managed", "sealedsecrets.bitnami.com/namespace-wide",
		"reflector.v1.k8s.emberstack.com/reflects", "replicator.v1.mittwald.de/replicated-from-version",
	}
}

// metadataOnly reports whether only the metadata of objects is requested.
func (s *Spec) metadataOnly() bool { return s.Cache == config.CacheMetadata }

// identityOnly reports whether the store keeps only identities.
func (s *Spec) identityOnly() bool { return s.Cache == config.CacheIdentity }

// Selective reports whether an object can leave the watch without being deleted: it is then
// Deselected.
func (s *Spec) Selective() bool { return s.NamespaceSelector != "" || s.filtered() }

// filtered reports whether an object can leave the watch without being deleted while its namespace
// stays selected. The API server then reports it as deleted.
func (s *Spec) filtered() bool {
	if s.LabelSelector != "" {
		return true
	}
	for term := range strings.SplitSeq(s.FieldSelector, ",") {
		name, _, _ := strings.Cut(term, "=")
		switch strings.TrimSuffix(strings.TrimSpace(name), "!") {
		case "", "metadata.name", "metadata.namespace": // their values never change
		default:
			return true
		}
	}
	return false
}
