package rbac

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/manifest"
)

// ServiceAccount returns a ServiceAccount as the subject of a binding.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}
}

// SubjectOf returns the subject with the user name that the API server reports.
func SubjectOf(user string) rbacv1.Subject {
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(rest, ":"); ok {
			return ServiceAccount(namespace, name)
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// Manifests returns the roles with these rules and their bindings in YAML, for kubectl apply. name
// returns the name of the role with some of the rules.
func Manifests(rules Rules, subject rbacv1.Subject, name func([]Rule) string) (string, error) {
	var documents []string
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		kind := "ClusterRole"
		if namespace != "" {
			kind = "Role"
		}
		// ClusterRoles and their bindings have the same fields.
		of := func(kind string) metav1.TypeMeta {
			return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
		}
		about := metav1.ObjectMeta{Name: name(rules[namespace]), Namespace: namespace}
		for _, object := range []any{
			rbacv1.Role{TypeMeta: of(kind), ObjectMeta: about, Rules: rules[namespace]},
			rbacv1.RoleBinding{
				TypeMeta: of(kind + "Binding"), ObjectMeta: about,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: about.Name}, Subjects: []rbacv1.Subject{subject},
			},
		} {
			text, err := json.Marshal(object)
			if err != nil {
				return "", err
			}
			document, err := manifest.ToYAML(text)
			if err != nil {
				return "", err
			}
			documents = append(documents, string(document))
		}
	}
	return strings.Join(documents, "---\n"), nil
}
