package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	demoPeriod = 2 * time.Second
	// demoAnnotation is a counter on pods.
	demoAnnotation = "demo.deltarouter.io/tick"
	crashing       = "CrashLoopBackOff"
)

// demo makes typical changes in the cluster.
type demo struct {
	client kubernetes.Interface
	tick   int
}

func newDemo(cfg *rest.Config) (*demo, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &demo{client: client}, nil
}

// run executes one step per period, again and again, until ctx ends. It logs a failed step, such as
// one that conflicts with a change by a user, and goes on.
func (d *demo) run(ctx context.Context) {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"annotate", d.annotate},
		{"crash", d.crash},
		{"crash", d.crash},
		{"toggle node", d.toggleNode},
		{"recover", d.recoverPods},
		{"recreate", d.recreate},
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		step := steps[d.tick%len(steps)]
		d.tick++
		if err := step.do(ctx); err != nil && ctx.Err() == nil {
			log.Printf("demo: %s: %v", step.name, err)
		}
	}, demoPeriod)
}

// pods lists the pods with a status, without the cluster's own.
func (d *demo) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := d.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 0 || strings.HasPrefix(p.Namespace, "kube-")
	}), nil
}

// anyPod returns one of them at random; nil if there is none.
func (d *demo) anyPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := d.pods(ctx)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	return &pods[rand.IntN(len(pods))], nil
}

func (d *demo) annotate(ctx context.Context) error {
	pod, err := d.anyPod(ctx)
	if err != nil || pod == nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, demoAnnotation, d.tick)
	_, err = d.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// crash increases the restart count of a pod: preferably of one that is crashing already, so that
// the count exceeds the threshold of any rule.
func (d *demo) crash(ctx context.Context) error {
	pods, err := d.pods(ctx)
	if err != nil || len(pods) == 0 {
		return err
	}
	pod := &pods[rand.IntN(len(pods))]
	if i := slices.IndexFunc(pods, isCrashing); i >= 0 {
		pod = &pods[i]
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.RestartCount++
		c.Ready = false
		c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", FinishedAt: metav1.Now(),
		}}
		c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: crashing, Message: "back-off restarting failed container",
		}}
	}
	return d.updateStatus(ctx, pod)
}

func isCrashing(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == crashing
	})
}

// recoverPods makes the crashing pods run again, every other round.
func (d *demo) recoverPods(ctx context.Context) error {
	pods, err := d.pods(ctx)
	if err != nil || rand.IntN(2) == 0 {
		return err
	}
	for _, pod := range pods {
		if !isCrashing(pod) {
			continue
		}
		for i := range pod.Status.ContainerStatuses {
			c := &pod.Status.ContainerStatuses[i]
			c.Ready = true
			c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		}
		if err := d.updateStatus(ctx, &pod); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) updateStatus(ctx context.Context, pod *corev1.Pod) error {
	_, err := d.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// recreate deletes a pod and creates it again under its name, with a new uid.
func (d *demo) recreate(ctx context.Context) error {
	pod, err := d.anyPod(ctx)
	if err != nil || pod == nil {
		return err
	}
	pods := d.client.CoreV1().Pods(pod.Namespace)
	now := int64(0)
	if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	fresh := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       pod.Spec,
	}
	made, err := pods.Create(ctx, fresh, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = pod.Status
	for i := range made.Status.ContainerStatuses {
		c := &made.Status.ContainerStatuses[i]
		c.RestartCount, c.Ready = 0, true
		c.LastTerminationState = corev1.ContainerState{}
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	}
	return d.updateStatus(ctx, made)
}

// toggleNode makes the node that is not Ready Ready again; if there is none, it makes one not
// Ready.
func (d *demo) toggleNode(ctx context.Context) error {
	list, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	down := func(n corev1.Node) bool { c := ready(&n); return c != nil && c.Status != corev1.ConditionTrue }
	node, status, reason := &list.Items[rand.IntN(len(list.Items))], corev1.ConditionFalse, "KubeletNotReady"
	if i := slices.IndexFunc(list.Items, down); i >= 0 {
		node, status, reason = &list.Items[i], corev1.ConditionTrue, "KubeletReady"
	}
	c := ready(node)
	if c == nil {
		return nil
	}
	c.Status, c.Reason, c.LastTransitionTime = status, reason, metav1.Now()
	_, err = d.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// ready returns the Ready condition of a node, or nil.
func ready(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}
