package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns the fields that the sandbox writes.
const fieldManager = "sandbox"

// definitionTimeout bounds the wait until a new kind is served.
const definitionTimeout = 30 * time.Second

// seeder applies manifests.
type seeder struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newSeeder(cfg *rest.Config) (*seeder, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	return &seeder{client: client, mapper: mapper}, nil
}

// applyFolder applies the manifests in the folder. It may be called again: existing objects are
// reset to the manifests.
func (s *seeder) applyFolder(ctx context.Context, folder string) error {
	objs, err := readFolder(folder)
	if err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	for _, obj := range objs {
		if err := s.apply(ctx, obj); err != nil {
			return fmt.Errorf("seed: %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// apply creates or updates an object, then its status, since no kubelet or controller writes it.
func (s *seeder) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	client, err := s.clientFor(ctx, obj)
	if err != nil {
		return err
	}
	force := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := client.Apply(ctx, obj.GetName(), obj, force); err != nil {
		return err
	}
	if isDefinition(obj) {
		return s.waitEstablished(ctx, client, obj.GetName())
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

// clientFor finds the resource of an object, which may have been defined a moment ago, and makes
// its namespace if that is missing.
func (s *seeder) clientFor(ctx context.Context, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return s.client.Resource(mapping.Resource), nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(metav1.NamespaceDefault)
	}
	if err := s.ensureNamespace(ctx, obj.GetNamespace()); err != nil {
		return nil, err
	}
	return s.client.Resource(mapping.Resource).Namespace(obj.GetNamespace()), nil
}

func (s *seeder) ensureNamespace(ctx context.Context, name string) error {
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(name)
	client := s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := client.Get(ctx, name, metav1.GetOptions{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	_, err := client.Create(ctx, ns, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// waitEstablished waits until each served version of a definition can be used: the condition alone
// is true a moment before discovery and the handlers know it.
func (s *seeder) waitEstablished(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	lastErr := errors.New("not established")
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, definitionTimeout, true,
		func(ctx context.Context) (bool, error) {
			crd, err := client.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				err = s.served(ctx, crd)
			}
			if err != nil {
				lastErr = err
			}
			return err == nil, nil
		})
	if err != nil {
		return fmt.Errorf("%w: %w", err, lastErr)
	}
	return nil
}

// served lists each served version of a definition, and asks discovery for it.
func (s *seeder) served(ctx context.Context, crd *unstructured.Unstructured) error {
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
