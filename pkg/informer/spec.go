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

// Spec says what a watch watches and what it keeps. Specs are comparable: sources with equal Specs
// can share a watch.
type Spec struct {
	Resource      schema.GroupVersionResource
	Namespace     string // empty: all, or a resource without namespaces
	LabelSelector string
	FieldSelector string
	Cache         string // config.CacheFull (also if empty), CacheMetadata or CacheIdentity
	ManagedFields bool   // keep metadata.managedFields
	Secrets       bool   // keep the data of v1/secrets
	// Drop is the paths that are cut out of every object, sorted and joined by newlines; see
	// [JoinDrop].
	Drop string
}

// Source is a name under which the deltas of a watch are put through.
type Source struct {
	Name string
	// Resync is how often every cached object is put through again as Sync; 0: never.
	Resync time.Duration
}

// ID returns a name for what is watched and what is kept, by which a checkpoint finds it again: it
// is the same in every run, and differs where the objects or their texts would.
func (s Spec) ID() string {
	if s.Cache == "" {
		s.Cache = config.CacheFull
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{
		s.Resource.Group, s.Resource.Version, s.Resource.Resource, s.Namespace, s.LabelSelector, s.FieldSelector, s.Cache,
		strconv.FormatBool(s.ManagedFields), strconv.FormatBool(s.Secrets), s.Drop,
	}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// SpecsOf returns what has to be watched for a configured source: one Spec, or one per namespace.
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
		Resource: gvr, LabelSelector: source.LabelSelector, FieldSelector: source.FieldSelector, Cache: source.Cache,
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

// parseResource reads [group/]version/resource, as in v1/pods or apps/v1/deployments.
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
// in status.conditions; a key with dots of its own is written
// metadata.annotations["example.com/key"]. Where a path meets a list it goes on in every element.
// What identifies an object cannot be dropped.
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
		if key == "" || strings.ContainsAny(key, "\n") {
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

// format returns what is kept of the objects.
func (s *Spec) format() *wire.Format {
	format := &wire.Format{MetadataOnly: s.metadataOnly(), Drop: s.dropped()}
	if s.redacted() {
		format.Annotations = SecretAnnotations()
	}
	return format
}

// identityFormat returns what is read of the objects where only their identity counts.
func (s *Spec) identityFormat() *wire.Format {
	return (&Spec{Resource: s.Resource, Cache: config.CacheMetadata}).format()
}

// Keep makes an object of its JSON text as a watch of this Spec would keep it: without what it
// drops. The error never quotes the text.
func Keep(spec Spec, cluster, text string) (*event.Object, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, err
	}
	resource := &event.Resource{GroupVersionResource: spec.Resource, Cluster: cluster, Kind: rawjson.Trim(text).Get("kind").Str()}
	return wire.NewDecoder(spec.format(), resource).Keep(text)
}

// dropped returns the keys of each path that the Spec does not keep.
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

// redacted reports whether nothing that is in confidence may be kept: of the annotations of such an
// object only those that are known not to hold its data, see SecretAnnotations.
func (s *Spec) redacted() bool {
	return s.Resource.Group == "" && s.Resource.Resource == "secrets" && !s.Secrets
}

// SecretAnnotations returns the annotations of a Secret that are known to say where it is from and
// what it is for, and not what is in it. Tools keep whole copies of what they apply in annotations
// of their own (kubectl, kapp, Rancher, Banzai Cloud's operators, and others to come), and some
// keep hashes, by which short values can be guessed. So all others are taken for confidential.
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

// metadataOnly reports whether only the metadata of objects shall go over the wire.
func (s *Spec) metadataOnly() bool { return s.Cache == config.CacheMetadata }

// identityOnly reports whether the store shall hold nothing but identities.
func (s *Spec) identityOnly() bool { return s.Cache == config.CacheIdentity }

// Selective reports whether an object can leave the watch without being deleted: then it is
// Deselected.
func (s *Spec) Selective() bool {
	if s.LabelSelector != "" {
		return true
	}
	for term := range strings.SplitSeq(s.FieldSelector, ",") {
		name, _, _ := strings.Cut(term, "=")
		switch strings.TrimSuffix(strings.TrimSpace(name), "!") {
		case "", "metadata.name", "metadata.namespace": // never change
		default:
			return true
		}
	}
	return false
}
