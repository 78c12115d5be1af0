package listing

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/internal/api"
)

// shortNames are the short names that kubectl users type for resources of Kubernetes.
var shortNames = map[string]string{
	"cm": "configmaps", "crd": "customresourcedefinitions", "cj": "cronjobs", "deploy": "deployments", "ds": "daemonsets",
	"ep": "endpoints", "ev": "events", "hpa": "horizontalpodautoscalers", "ing": "ingresses", "limits": "limitranges",
	"netpol": "networkpolicies", "no": "nodes", "ns": "namespaces", "pc": "priorityclasses", "pdb": "poddisruptionbudgets",
	"po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas", "rc": "replicationcontrollers",
	"rs": "replicasets", "sa": "serviceaccounts", "sc": "storageclasses", "sts": "statefulsets", "svc": "services",
}

// Source returns the name of the source that text means: the name of a source, or the resource of
// one as kubectl users write it: deployments, deployment, Deployment, deploy, deployments.apps or
// deployments.v1.apps. A text that means none is returned as it is. It is an error if several
// sources watch the resource.
func Source(text string, sources []api.SourceInfo) (string, error) {
	if slices.ContainsFunc(sources, func(s api.SourceInfo) bool { return s.Name == text }) {
		return text, nil
	}
	var found []string
	for _, s := range sources {
		if means(text, s.Resource) {
			found = append(found, s.Name)
		}
	}
	switch len(found) {
	case 0:
		return text, nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several sources watch %s: name one of %s", text, strings.Join(found, ", "))
}

// means reports whether text means a resource in the form [group/]version/resource.
func means(text, resource string) bool {
	parts := strings.Split(resource, "/")
	name, version, group := parts[len(parts)-1], "", ""
	if len(parts) > 1 {
		version = parts[len(parts)-2]
	}
	if len(parts) > 2 {
		group = parts[0]
	}
	kind, rest, grouped := strings.Cut(strings.ToLower(text), ".")
	if grouped && rest != group && rest != strings.TrimSuffix(version+"."+group, ".") {
		return false
	}
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return name == kind || name == shortNames[kind] || name == plural.Resource && kind == singular.Resource
}
