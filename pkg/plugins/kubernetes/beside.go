package kubernetes

import (
	"slices"

	"github.com/deltarouter/deltarouter/pkg/authz"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

const (
	groupRBAC         = "rbac.authorization.k8s.io"
	groupCertificates = "certificates.k8s.io"
	groupAdmission    = "admissionregistration.k8s.io"
	groupDevices      = "resource.k8s.io"
)

// beside returns the rights that the API server requires beside the verb of a write, depending on
// the content of the object. selected: the namespaces of the grant have a selector.
//
// It knows the checks of Kubernetes' own resources. The admission plugin
// OwnerReferencesPermissionEnforcement, which is off by default, asks for rights on the owner in an
// object, which only the event names.
func beside(verb string, on authz.Right, selected bool) (all []plugins.NeededRight) {
	if !slices.Contains([]string{verbApply, verbCreate, verbMerge, verbJSON}, verb) {
		return nil
	}
	inCluster := func(when, verb, group, resource string) {
		all = append(all, plugins.NeededRight{When: when, Right: authz.Right{Verb: verb, Group: group, Resource: resource}})
	}
	inNamespace := func(when, verb, resource string) {
		r := authz.Right{Verb: verb, Group: on.Group, Resource: resource, Namespace: on.Namespace}
		all = append(all, plugins.NeededRight{When: when, Right: r, Selected: selected && on.Namespace == ""})
	}
	const (
		role    = "for a role with rights that the router does not have itself"
		binding = "for a binding to a role with rights that the router does not have itself"
		signed  = "for the certificate and the conditions of a request to this signer"
		bundle  = "for a bundle of this signer"
		params  = "for a policy with paramKind or a binding with paramRef, on the resource of the parameters only"
		claim   = "for the allocation, the consumers and the devices in the status of a claim"
	)
	switch on.Group + "/" + on.Resource {
	case groupRBAC + "/clusterroles":
		inCluster(role, "escalate", on.Group, on.Resource)
	case groupRBAC + "/roles":
		inNamespace(role, "escalate", on.Resource)
	case groupRBAC + "/clusterrolebindings":
		inCluster(binding, "bind", on.Group, "clusterroles")
	case groupRBAC + "/rolebindings":
		inNamespace(binding, "bind", "roles")
		inNamespace(binding, "bind", "clusterroles")
	case groupCertificates + "/certificatesigningrequests/status", groupCertificates + "/podcertificaterequests/status":
		inCluster(signed, "sign", on.Group, "signers")
	case groupCertificates + "/clustertrustbundles":
		inCluster(bundle, "attest", on.Group, "signers")
	case groupAdmission + "/validatingadmissionpolicies", groupAdmission + "/mutatingadmissionpolicies":
		inCluster(params, "get", "*", "*")
	case groupAdmission + "/validatingadmissionpolicybindings", groupAdmission + "/mutatingadmissionpolicybindings":
		inCluster(params, "get", "*", "*")
		inCluster(params, "list", "*", "*")
	case groupDevices + "/resourceclaims/status":
		inCluster(claim, "patch", on.Group, "resourceclaims/binding")
		inNamespace(claim, "arbitrary-node:patch", "resourceclaims/driver")
	}
	for i := range all {
		// Few of these objects have such content, or older API servers do not ask. Most bindings are to
		// ClusterRoles.
		all[i].Optional = on.Group == groupAdmission || on.Group == groupDevices || on.Resource == "rolebindings" && all[i].Resource == "roles"
	}
	return all
}
