package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestBoot starts both halves in this process with the example cluster. An API server can be
// started once per process, so this test has all checks that need one.
func TestBoot(t *testing.T) {
	opts := options{dir: filepath.Join(t.TempDir(), "sandbox"), seed: "../../examples/cluster", audit: true}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stdout, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, opts, w)
		w.Close()
		ended <- err
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("got line %q, error %v; ended with %v", line, err, <-ended)
	}

	client, dyn := clientsFor(t, filepath.Join(opts.dir, adminConfig))
	t.Run("seed", func(t *testing.T) { checkSeed(ctx, t, client, dyn) })
	t.Run("seed again", func(t *testing.T) { checkSeedAgain(ctx, t, opts) })
	t.Run("limited", func(t *testing.T) { checkLimited(ctx, t, filepath.Join(opts.dir, limitedConfig)) })
	t.Run("deletion ends", func(t *testing.T) { checkDeletion(ctx, t, client) })
	t.Run("demo", func(t *testing.T) { checkDemo(ctx, t, client) })
	t.Run("audit", func(t *testing.T) {
		info, err := os.Stat(filepath.Join(opts.dir, auditLogFile))
		if err != nil || info.Size() == 0 {
			t.Errorf("audit log: %v, %v", info, err)
		}
	})

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("stopped with %v", err)
	}
	if _, err := os.Stat(opts.dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func clientsFor(t *testing.T, kubeconfig string) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client, dyn
}

func checkSeed(ctx context.Context, t *testing.T, client kubernetes.Interface, dyn dynamic.Interface) {
	pod, err := client.CoreV1().Pods("default").Get(ctx, "three", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].RestartCount != 2 {
		t.Errorf("the status of pod three was not applied: %+v", pod.Status)
	}
	node, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := ready(node); c == nil || c.Status != corev1.ConditionTrue {
		t.Errorf("node n1 is not ready: %+v", node.Status)
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if _, err := dyn.Resource(widgets).Namespace("shop").Get(ctx, "gizmo", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// checkSeedAgain applies the same folder again, as a restart on a kept folder does.
func checkSeedAgain(ctx context.Context, t *testing.T, opts options) {
	d := &dir{path: opts.dir}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	s, err := newSeeder(d.restConfig(sandboxUser))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.applyFolder(ctx, opts.seed); err != nil {
		t.Error(err)
	}
}

func checkLimited(ctx context.Context, t *testing.T, kubeconfig string) {
	limited, _ := clientsFor(t, kubeconfig)
	if _, err := limited.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("got error %v, want forbidden", err)
	}
	if _, err := limited.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

// checkDeletion deletes a namespace with a pod on a node in it; without the controllers both would
// terminate forever.
func checkDeletion(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	namespaces := client.CoreV1().Namespaces()
	ns, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "boot-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := client.CoreV1().Pods(ns.Name).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		t.Errorf("namespace %s is still there: %v", ns.Name, err)
	}
}

// checkDemo runs each step of the demo once.
func checkDemo(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	d := &demo{client: client}
	for _, step := range []func(context.Context) error{d.annotate, d.crash, d.toggleNode, d.recoverPods, d.recreate} {
		if err := step(ctx); err != nil {
			t.Error(err)
		}
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	down := 0
	for _, n := range nodes.Items {
		if c := ready(&n); c == nil || c.Status != corev1.ConditionTrue {
			down++
		}
	}
	if down != 1 {
		t.Errorf("%d nodes are down, want 1", down)
	}
}
