package sandboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

const (
	definitionTimeout = time.Minute
	cleanupTimeout    = time.Minute
)

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Namespace makes a namespace for this test. After the test it deletes the namespace in the
// background, with all its objects.
func (s *Sandbox) Namespace(tb testing.TB) string {
	tb.Helper()
	name := namespaceName(tb.Name())
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	if _, err := s.client.Resource(namespaces).Create(tb.Context(), ns, metav1.CreateOptions{}); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	if s.private {
		return name // ends with its sandbox, which may have stopped by then
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupTimeout)
		defer cancel()
		err := s.client.Resource(namespaces).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			tb.Logf("sandboxtest: %v", err)
		}
	})
	return name
}

var notInNames = regexp.MustCompile("[^a-z0-9]+")

// namespaceName makes a unique name that contains the name of the test.
func namespaceName(test string) string {
	const longest = 50 // of 63, the rest is for the unique end
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(test), "-"), "-")
	name = strings.Trim(name[:min(len(name), longest)], "-")
	return name + "-" + strings.ToLower(rand.Text()[:8])
}

// Apply creates or updates the objects of a stream of YAML documents, including their status, since
// no kubelet or controller writes it. Namespaced objects without a namespace go to the given one.
// It returns after new definitions are served.
func (s *Sandbox) Apply(tb testing.TB, namespace, manifests string) {
	tb.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			tb.Fatalf("sandboxtest: apply: %v", err)
		}
		if len(obj.Object) == 0 {
			continue // comments only
		}
		if err := s.apply(tb.Context(), namespace, obj); err != nil {
			tb.Fatalf("sandboxtest: apply %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

func (s *Sandbox) apply(ctx context.Context, namespace string, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = s.client.Resource(mapping.Resource)
	if mapping.Scope.Name() != meta.RESTScopeNameRoot {
		if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		client = s.client.Resource(mapping.Resource).Namespace(obj.GetNamespace())
	}
	force := metav1.ApplyOptions{FieldManager: userAgent, Force: true}
	if _, err := client.Apply(ctx, obj.GetName(), obj, force); err != nil {
		return err
	}
	if gvk.Kind == "CustomResourceDefinition" {
		return s.waitServed(ctx, obj)
	}
	if _, ok := obj.Object["status"]; !ok {
		return nil
	}
	_, err = client.ApplyStatus(ctx, obj.GetName(), obj, force)
	if apierrors.IsNotFound(err) {
		return nil // no status subresource, so the first call has written it
	}
	return err
}

// waitServed waits until each served version of a definition can be listed and mapped.
func (s *Sandbox) waitServed(ctx context.Context, crd *unstructured.Unstructured) error {
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, definitionTimeout, true,
		func(ctx context.Context) (bool, error) {
			lastErr = s.served(ctx, crd)
			return lastErr == nil, nil
		})
	if err != nil {
		return fmt.Errorf("%w: %w", err, lastErr)
	}
	return nil
}

func (s *Sandbox) served(ctx context.Context, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	s.mapper.Reset()
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if on, _ := version["served"].(bool); !on {
			continue
		}
		name, _ := version["name"].(string)
		gvr := schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
		if _, err := s.client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		if _, err := s.mapper.KindFor(gvr); err != nil {
			return err
		}
	}
	return nil
}

// Grant permits the user of LimitedKubeconfig to use resources (plural names) of an API group ("":
// core) in one namespace, or everywhere if the namespace is empty. The returned function, or the
// end of the test, revokes the right. The API server notices within moments, not at once.
func (s *Sandbox) Grant(tb testing.TB, namespace, group string, resources, verbs []string) (revoke func()) {
	tb.Helper()
	role, binding, prefix := "Role", "RoleBinding", "namespaced"
	if namespace == "" {
		role, binding, prefix = "ClusterRole", "ClusterRoleBinding", "cluster"
	}
	name := prefix + "-" + strings.ToLower(rand.Text()[:8])
	const rbac = "rbac.authorization.k8s.io"
	objs := []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": rbac + "/v1", "kind": role, "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{"apiGroups": []any{group}, "resources": anys(resources), "verbs": anys(verbs)}},
		}},
		{Object: map[string]any{
			"apiVersion": rbac + "/v1", "kind": binding, "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": role, "name": name},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": s.LimitedUser()}},
		}},
	}
	for _, obj := range objs {
		if err := s.apply(tb.Context(), namespace, obj); err != nil {
			tb.Fatalf("sandboxtest: grant: %v", err)
		}
	}
	bindings := schema.GroupVersionResource{Group: rbac, Version: "v1", Resource: strings.ToLower(binding) + "s"}
	revoke = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), cleanupTimeout)
		defer cancel()
		err := s.client.Resource(bindings).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			tb.Errorf("sandboxtest: revoke: %v", err)
		}
	}
	if !s.private {
		tb.Cleanup(revoke)
	}
	return revoke
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
