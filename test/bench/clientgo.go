package main

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// consumeDynamic uses the dynamic informer, which works with any resource, including custom ones.
func consumeDynamic(c consumer) error { return consumeInformer(c, dynamicInformer) }

// consumeTyped uses the typed informer over protobuf, which exists for built-in kinds only.
func consumeTyped(c consumer) error { return consumeInformer(c, typedInformer) }

func dynamicInformer(url string) (cache.SharedIndexInformer, error) {
	client, err := dynamic.NewForConfig(restConfig(url))
	if err != nil {
		return nil, err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	return informer, prepare(informer, func(object any) ([]string, error) {
		node, _, err := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "spec", "nodeName")
		return []string{node}, err
	})
}

func typedInformer(url string) (cache.SharedIndexInformer, error) {
	cfg := restConfig(url)
	cfg.ContentConfig = rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	return informer, prepare(informer, func(object any) ([]string, error) {
		return []string{object.(*corev1.Pod).Spec.NodeName}, nil
	})
}

// restConfig is the configuration of a client of the server, which has a certificate of its own.
func restConfig(url string) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// prepare makes an informer keep what the router keeps: no managedFields, and one index.
func prepare(informer cache.SharedIndexInformer, byNode cache.IndexFunc) error {
	if err := informer.SetTransform(stripManagedFields); err != nil {
		return err
	}
	return informer.AddIndexers(cache.Indexers{"byNode": byNode})
}

func consumeInformer(c consumer, connect func(url string) (cache.SharedIndexInformer, error)) error {
	informer, err := connect(c.url)
	if err != nil {
		return err
	}
	var updates atomic.Int64
	done := make(chan struct{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(any, any) {
			if updates.Add(1) == int64(c.updates) {
				close(done)
			}
		},
	})
	if err != nil {
		return err
	}
	c.begin()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go informer.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
	if err := c.synced(); err != nil {
		return err
	}
	<-done
	return c.done()
}

func stripManagedFields(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetManagedFields([]metav1.ManagedFieldsEntry(nil))
	return object, nil
}
