package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/deltarouter/deltarouter/internal/similar"
)

// known has the resources of Kubernetes itself by group and version, for proposals in messages. Of
// several groups or versions with a resource, the first is proposed.
var known = []struct{ version, resources string }{
	{"v1", "componentstatuses configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims persistentvolumes pods podtemplates " +
		"replicationcontrollers resourcequotas secrets serviceaccounts services"},
	{"apps/v1", "controllerrevisions daemonsets deployments replicasets statefulsets"},
	{"batch/v1", "cronjobs jobs"},
	{"autoscaling/v2", "horizontalpodautoscalers"},
	{"networking.k8s.io/v1", "ingressclasses ingresses ipaddresses networkpolicies servicecidrs"},
	{"policy/v1", "poddisruptionbudgets"},
	{"rbac.authorization.k8s.io/v1", "clusterrolebindings clusterroles rolebindings roles"},
	{"storage.k8s.io/v1", "csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses"},
	{"discovery.k8s.io/v1", "endpointslices"},
	{"coordination.k8s.io/v1", "leases"},
	{"events.k8s.io/v1", "events"},
	{"scheduling.k8s.io/v1", "priorityclasses"},
	{"node.k8s.io/v1", "runtimeclasses"},
	{"certificates.k8s.io/v1", "certificatesigningrequests clustertrustbundles podcertificaterequests"},
	{"apiextensions.k8s.io/v1", "customresourcedefinitions"},
	{"apiregistration.k8s.io/v1", "apiservices"},
	{"admissionregistration.k8s.io/v1", "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations " +
		"validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations"},
	{"flowcontrol.apiserver.k8s.io/v1", "flowschemas prioritylevelconfigurations"},
	{"resource.k8s.io/v1", "deviceclasses devicetaintrules resourceclaims resourceclaimtemplates resourceslices"},
	{"storagemigration.k8s.io/v1", "storageversionmigrations"},
}

// shortNames are those of kubectl.
var shortNames = map[string]string{
	"po": "pods", "svc": "services", "cm": "configmaps", "ns": "namespaces", "no": "nodes", "ep": "endpoints", "ev": "events", "sa": "serviceaccounts",
	"pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "rc": "replicationcontrollers", "quota": "resourcequotas", "limits": "limitranges",
	"deploy": "deployments", "ds": "daemonsets", "rs": "replicasets", "sts": "statefulsets", "cj": "cronjobs", "hpa": "horizontalpodautoscalers",
	"ing": "ingresses", "netpol": "networkpolicies", "pdb": "poddisruptionbudgets", "sc": "storageclasses", "pc": "priorityclasses",
	"crd": "customresourcedefinitions", "crds": "customresourcedefinitions", "csr": "certificatesigningrequests",
}

var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// propose completes the message about a text that does not name a resource as
// [group/]version/resource. It knows the forms of kubectl: pods, pod, Pod, po, deployments.apps and
// deployments.v1.apps.
func propose(text string) string {
	parts := strings.Split(text, "/")
	name, group, _ := strings.Cut(parts[len(parts)-1], ".")
	if v, of, ok := strings.Cut(group, "."); ok && version.MatchString(v) && len(parts) == 1 {
		return fmt.Sprintf("; did you mean %q?", of+"/"+v+"/"+strings.ToLower(name))
	}
	if group == "" && len(parts) > 1 && !version.MatchString(parts[0]) {
		group = parts[0]
	}
	if found := find(strings.ToLower(name), group); found != "" {
		return fmt.Sprintf("; did you mean %q?", found)
	}
	return "; kubectl api-resources shows the version and the name of each resource"
}

// find returns the resource of Kubernetes with a name, which may be in the singular, short
// or misspelt, or "". group may be empty.
func find(name, group string) string {
	if plural, ok := shortNames[name]; ok {
		name = plural
	}
	var names []string
	for _, v := range known {
		of, _, _ := strings.Cut(v.version, "/")
		if group != "" && of != group {
			continue
		}
		for _, resource := range strings.Fields(v.resources) {
			for _, plural := range []string{name, name + "s", name + "es", strings.TrimSuffix(name, "y") + "ies"} {
				if plural == resource {
					return v.version + "/" + resource
				}
			}
			names = append(names, resource)
		}
	}
	if near, ok := similar.Nearest(name, names); ok && near != name {
		return find(near, group)
	}
	return ""
}
