package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// wire uses the server of this command. It costs next to nothing, so the measurement is about the
// router.
type wire struct {
	*server

	file string
}

func newWire(dir string, pods int) (*wire, error) {
	s, err := startServer(pods, 0)
	if err != nil {
		return nil, err
	}
	s.live, s.version = true, pods
	w := &wire{server: s, file: filepath.Join(dir, "wire")}
	return w, clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"wire": {Server: s.url}},
		Contexts:       map[string]*api.Context{"wire": {Cluster: "wire"}},
		CurrentContext: "wire",
	}, w.file)
}

func (w *wire) kubeconfig() string { return w.file }
func (w *wire) namespaces() string { return "" }
func (w *wire) begin()             {} // it changes pods whenever it is watched
func (w *wire) end() error         { return nil }

func (w *wire) lists() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
}

// sandbox is a real API server with its etcd.
type sandbox struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	file   string
	client *kubernetes.Clientset

	stop    context.CancelFunc
	changes sync.WaitGroup
	err     error
}

const (
	sandboxNamespace = "bench"
	creators         = 16
	changeEvery      = 5 * time.Millisecond
)

// newSandbox starts a sandbox. args are flags of its API server.
func newSandbox(ctx context.Context, binary, dir string, pods int, args ...string) (*sandbox, error) {
	command := []string{"-dir", dir, "-stdin"}
	for _, arg := range args {
		command = append(command, "-apiserver-arg", arg)
	}
	s := &sandbox{cmd: exec.CommandContext(ctx, binary, command...), file: filepath.Join(dir, "kubeconfig")}
	s.cmd.Stderr = os.Stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("the sandbox said %q: %w", line, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.file)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	return s, s.fill(ctx, pods)
}

// fill makes the pods of the other benchmarks.
func (s *sandbox) fill(ctx context.Context, pods int) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sandboxNamespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	var wait sync.WaitGroup
	errs := make(chan error, creators)
	for worker := range creators {
		wait.Go(func() {
			for i := worker; i < pods; i += creators {
				pod := examplePod()
				pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion = fmt.Sprintf("pod-%07d", i), sandboxNamespace, "", ""
				pod.Spec.NodeName = fmt.Sprintf("node-%04d", i%nodes)
				pod.ManagedFields = nil
				if _, err := s.client.CoreV1().Pods(sandboxNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs
}

func (s *sandbox) kubeconfig() string { return s.file }
func (s *sandbox) namespaces() string { return ", namespaces: " + sandboxNamespace }
func (s *sandbox) lists() int         { return -1 }

// begin changes a different pod every few milliseconds.
func (s *sandbox) begin() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.err = stop, nil
	s.changes.Go(func() {
		tick := time.NewTicker(changeEvery)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, time.Now().UnixNano())
			_, err := s.client.CoreV1().Pods(sandboxNamespace).
				Patch(ctx, fmt.Sprintf("pod-%07d", i%100), types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil && ctx.Err() == nil {
				s.err = err
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

func (s *sandbox) end() error {
	s.stop()
	s.changes.Wait()
	return s.err
}

func (s *sandbox) close() error {
	_ = s.stdin.Close() // ends the sandbox
	return s.cmd.Wait()
}

// workplace returns the absolute path of the router's binary, and a new folder with the function
// that removes it.
func workplace(router string) (binary, dir string, remove func(), err error) {
	if binary, err = filepath.Abs(router); err != nil {
		return "", "", nil, err
	}
	if dir, err = os.MkdirTemp("", "deltarouter-bench"); err != nil {
		return "", "", nil, err
	}
	return binary, dir, func() { _ = os.RemoveAll(dir) }, nil
}
