package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "peers"
	writers   = 16
	textBytes = 4000 // of a ConfigMap
)

// cluster is a real API server and its etcd, two processes of bin/sandbox.
type cluster struct {
	binary, dir     string
	etcd, apiserver *half
	config          *rest.Config
	client          *kubernetes.Clientset
}

// half is a process of the sandbox.
type half struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startCluster starts both halves. They end with ctx, or with this process.
func startCluster(ctx context.Context, binary, dir string) (*cluster, error) {
	c := &cluster{binary: binary, dir: dir}
	err := c.connect(ctx)
	if err != nil {
		c.close()
	}
	return c, err
}

// connect starts both halves and makes the client and the namespace.
func (c *cluster) connect(ctx context.Context) (err error) {
	if c.etcd, err = c.start(ctx, "etcd"); err != nil {
		return err
	}
	if c.apiserver, err = c.start(ctx, "apiserver"); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig()); err != nil {
		return err
	}
	c.config.QPS = -1
	c.config.WarningHandler = rest.NoWarnings{}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	_, err = c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// start starts a half and waits until it is ready.
func (c *cluster) start(ctx context.Context, name string) (h *half, err error) {
	h = &half{cmd: exec.CommandContext(ctx, c.binary, "-dir", c.dir, "-only", name, "-stdin")}
	h.cmd.Stderr = os.Stderr
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		h.stop()
		return nil, fmt.Errorf("the sandbox, %s, said %q: %w", name, line, err)
	}
	return h, nil
}

func (h *half) stop() {
	if h != nil {
		_ = h.stdin.Close()
		_ = h.cmd.Wait()
	}
}

func (c *cluster) close() {
	c.apiserver.stop()
	c.etcd.stop()
}

// restartAPIServer stops and starts the API server. With forget, etcd loses its history in between.
func (c *cluster) restartAPIServer(ctx context.Context, forget bool) (err error) {
	c.apiserver.stop()
	if c.apiserver = nil; forget {
		if err := c.compact(ctx); err != nil {
			return err
		}
	}
	c.apiserver, err = c.start(ctx, "apiserver")
	return err
}

// compact drops all history before the latest change, by etcd's JSON gateway.
func (c *cluster) compact(ctx context.Context) error {
	var now struct{ Header struct{ Revision string } }
	if err := c.ask(ctx, "/v3/kv/range", map[string]any{"key": []byte{0}, "count_only": true}, &now); err != nil {
		return err
	}
	return c.ask(ctx, "/v3/kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, &struct{}{})
}

// ask calls a method of etcd.
func (c *cluster) ask(ctx context.Context, path string, in, out any) error {
	url, err := os.ReadFile(filepath.Join(c.dir, "etcd-url"))
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(string(url))+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// work is the objects whose changes the programs tell.
type work struct {
	name     string
	resource string // of the core group
	kind     string
	stamp    string // the field that has the stamp
	// updated: the objects change and are deleted, too. Events are only created.
	updated bool
}

func configMaps() *work { return &work{"ConfigMaps", "configmaps", "ConfigMap", "data.stamp", true} }
func events() *work     { return &work{"Events", "events", "Event", "message", false} }

// create makes an object with the stamp of a change.
func (w *work) create(ctx context.Context, c *cluster, ch change) error {
	meta := metav1.ObjectMeta{Name: ch.object, Namespace: namespace}
	if w.updated {
		_, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: meta, Data: map[string]string{"stamp": fmt.Sprint(ch.stamp), "text": strings.Repeat("the text ", textBytes/9)},
		}, metav1.CreateOptions{})
		return err
	}
	now := metav1.Now()
	_, err := c.client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: meta, Message: fmt.Sprint(ch.stamp), Reason: "BackOff", Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "pod-" + ch.object},
		Source:         corev1.EventSource{Component: "bench"},
	}, metav1.CreateOptions{})
	return err
}

// update gives a ConfigMap the stamp of a change.
func (*work) update(ctx context.Context, c *cluster, ch change) error {
	patch := fmt.Appendf(nil, `{"data":{"stamp":"%d"}}`, ch.stamp)
	_, err := c.client.CoreV1().ConfigMaps(namespace).Patch(ctx, ch.object, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// remove deletes a ConfigMap.
func (*work) remove(ctx context.Context, c *cluster, ch change) error {
	return c.client.CoreV1().ConfigMaps(namespace).Delete(ctx, ch.object, metav1.DeleteOptions{})
}

// write is one request of a batch of changes.
type write struct {
	object string
	do     func(context.Context, *cluster, change) error
	delete bool
}

// batch makes writes with several writers: rate of them in a second, or as fast as possible if rate
// is 0. It returns the changes in the order of the writes.
func (c *cluster) batch(ctx context.Context, l *ledger, rate int, writes []write) ([]change, error) {
	var wait sync.WaitGroup
	changes, errs, next := make([]change, len(writes)), make([]error, writers), make(chan int)
	for worker := range writers {
		wait.Go(func() {
			for i := range next {
				if w := writes[i]; w.delete {
					changes[i] = l.deletes(w.object)
				} else {
					changes[i] = l.next(w.object)
				}
				if err := writes[i].do(ctx, c, changes[i]); err != nil {
					errs[worker] = errors.Join(errs[worker], fmt.Errorf("%s: %w", writes[i].object, err))
				}
			}
		})
	}
	began := time.Now()
	for i := range writes {
		if rate > 0 {
			_ = sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second/time.Duration(rate))))
		}
		next <- i
	}
	close(next)
	wait.Wait()
	return changes, errors.Join(append(errs, ctx.Err())...)
}
