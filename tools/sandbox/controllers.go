package main

import (
	"context"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// The intervals of retries. The namespace controller by itself would wait for half of the grace
// period of the pods, which end at once here.
const (
	namespaceResync = time.Second
	podResync       = 10 * time.Second
)

// startControllers starts the two controllers that deletions need: the real namespace controller,
// and a stand-in for the kubelet that releases deleted pods. Owned objects are not
// garbage-collected. The controllers run until ctx ends.
func startControllers(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	typed := informers.NewSharedInformerFactory(client, namespaceResync)
	namespaces := namespace.NewNamespaceController(ctx, client, meta,
		client.Discovery().ServerPreferredNamespacedResources,
		typed.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes)
	typed.Start(ctx.Done())
	go namespaces.Run(ctx, 2)

	// Metadata is sufficient, and costs less under load.
	partial := metadatainformer.NewSharedInformerFactory(meta, podResync)
	pods := partial.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	release := func(obj any) { releasePod(ctx, client, obj) }
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    release,
		UpdateFunc: func(_, obj any) { release(obj) },
	})
	if err != nil {
		return err
	}
	partial.Start(ctx.Done())
	return nil
}

// releasePod ends the grace period of a deleted pod, as a kubelet does after the containers have
// stopped. The next resync retries failures.
func releasePod(ctx context.Context, client kubernetes.Interface, obj any) {
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || pod.DeletionTimestamp == nil {
		return
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return // only finalizers hold it
	}
	now := int64(0)
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		log.Printf("release pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
}
