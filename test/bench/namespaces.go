package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// allNamespaces is the number of the namespaces of the cluster, podsEach of the pods in each.
	allNamespaces = 1000
	podsEach      = 5
	// idleFor is the time without changes, and busyFor the time with them.
	idleFor = 20 * time.Second
	busyFor = 10 * time.Second
)

const namespacesConfig = `version: 1
cluster: {name: bench, kubeconfig: %q}
listen: {probes: "127.0.0.1:0"}
sources:
  pods: {resource: v1/pods, %s}
sinks: {none: {discard: {}}}
routes:
  - {name: all, from: pods, to: none}
`

// use has the CPU time and memory that a process has used.
type use struct {
	cpu time.Duration
	rss int // MB
}

// selections compares, on the sandbox, a watch for each selected namespace with one watch of all
// namespaces that keeps the objects in the selected ones, for 10, 100 and 1000 of 1000 namespaces
// with 5 pods of 5 KB each. It prints the time until the router is ready, and the CPU of the router
// and of the API server (with etcd): until then, while nothing changes, and while pods in random
// namespaces change 200 times a second. The memory is that at the end.
func selections(router, sandboxBinary string) error {
	ctx := context.Background()
	router, dir, remove, err := workplace(router)
	if err != nil {
		return err
	}
	defer remove()
	s, err := newSandbox(ctx, sandboxBinary, filepath.Join(dir, "cluster"), 0)
	if err != nil {
		return err
	}
	if err = s.fillNamespaces(ctx); err == nil {
		fmt.Println("selected  watches  ready    start CPU router/API   idle CPU router/API (20 s)   busy CPU router/API (10 s)   RSS router/API")
		for _, selected := range []int{10, 100, 1000} {
			for _, each := range []bool{true, false} {
				err = errors.Join(err, s.selection(ctx, router, dir, selected, each))
			}
		}
	}
	return errors.Join(err, s.close())
}

// fillNamespaces makes the namespaces and the pods. The labels of namespace i are selected=N for
// each N above i.
func (s *sandbox) fillNamespaces(ctx context.Context) error {
	return inParallel(allNamespaces, func(i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i), Labels: make(map[string]string)}}
		for _, n := range []int{10, 100, 1000} {
			if i < n {
				namespace.Labels[fmt.Sprintf("in-%d", n)] = "yes"
			}
		}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		for k := range podsEach {
			pod := examplePod()
			pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion, pod.ManagedFields = fmt.Sprintf("pod-%d", k), namespace.Name, "", "", nil
			if _, err := s.client.CoreV1().Pods(namespace.Name).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func namespaceOf(i int) string { return fmt.Sprintf("ns-%04d", i) }

// inParallel calls f for 0 to n-1.
func inParallel(n int, f func(i int) error) error {
	var wait sync.WaitGroup
	errs := make([]error, creators)
	for worker := range creators {
		wait.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += creators {
				errs[worker] = f(i)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// selection measures one router.
func (s *sandbox) selection(ctx context.Context, router, dir string, selected int, each bool) error {
	choice, watches := fmt.Sprintf("namespaceSelector: in-%d=yes", selected), 2
	if each {
		var names []string
		for i := range selected {
			names = append(names, namespaceOf(i))
		}
		choice, watches = "namespaces: ["+strings.Join(names, ", ")+"]", selected
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, namespacesConfig, s.file, choice), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, router, "-config", config)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	before, began := useOf(s.cmd.Process.Pid), time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	probes := make(chan string, 1)
	go readLog(stderr, probes)
	p := &process{url: strings.TrimSuffix(<-probes, "/metrics")}
	for p.get("/readyz") == "" {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began).Round(time.Millisecond)
	marks := [][2]use{{{}, before}}
	mark := func() { marks = append(marks, [2]use{useOf(cmd.Process.Pid), useOf(s.cmd.Process.Pid)}) }
	mark()
	time.Sleep(idleFor)
	mark()
	err = s.changeFor(ctx, busyFor)
	mark()
	line := fmt.Sprintf("%8d  %7d  %-7v", selected, watches, took)
	for i := range 3 {
		line += fmt.Sprintf("  %8v / %-8v      ", marks[i+1][0].cpu-marks[i][0].cpu, marks[i+1][1].cpu-marks[i][1].cpu)
	}
	fmt.Printf("%s  %d / %d MB\n", line, marks[3][0].rss, marks[3][1].rss)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, cmd.Wait())
}

// changeFor changes pods in all namespaces, one after the other.
func (s *sandbox) changeFor(ctx context.Context, d time.Duration) error {
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	until := time.Now().Add(d)
	for i := 0; time.Now().Before(until); i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, time.Now().UnixNano())
		_, err := s.client.CoreV1().Pods(namespaceOf(i*7%allNamespaces)).Patch(ctx, "pod-0", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

// useOf returns the use of a running process.
func useOf(pid int) use {
	u := use{cpu: cpuOf(pid)}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := bytes.Cut(text, []byte("VmRSS:")); ok {
		_, _ = fmt.Sscan(string(rest), &u.rss)
	}
	u.rss /= 1024
	return u
}
