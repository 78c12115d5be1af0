package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// manifests are those that the chart renders.
const manifests = "../../deploy/manifests/deltarouter.yaml"

// installation is the times of one installation, each since the first request, and the memory of
// the idle router.
type installation struct {
	applied, event time.Duration
	ready          time.Duration // since the start of the process
	rss            float64
}

// installations applies the rendered manifests of the chart to a sandbox, starts the router as its
// pod would, and prints medians. The sandbox has no kubelet: this command plays it. It requests the
// token of the ServiceAccount, mounts the ConfigMap and starts the process, and it pulls no image
// and starts no container.
func installations(ctx context.Context, router, sandboxBinary, dir string, rounds int) error {
	s, err := newSandbox(ctx, sandboxBinary, filepath.Join(dir, "cluster"), 10)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	var applied, events, ready []time.Duration
	rss := 0.0
	for round := range rounds {
		one, err := s.install(ctx, router, filepath.Join(dir, fmt.Sprintf("install-%d", round)), fmt.Sprintf("router-%d", round))
		if err != nil {
			return err
		}
		applied, events, ready = append(applied, one.applied), append(events, one.event), append(ready, one.ready)
		rss = max(rss, one.rss)
	}
	fmt.Printf("%d installations on the sandbox, medians: manifests applied after %v, first event after %v; start to ready %v; RSS idle at most %.0f MB\n",
		rounds, rounded(medianTime(applied)), rounded(medianTime(events)), rounded(medianTime(ready)), rss)
	return nil
}

func (s *sandbox) install(ctx context.Context, router, dir, namespace string) (one installation, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return one, err
	}
	objects, err := readManifests(namespace)
	if err != nil {
		return one, err
	}
	began := time.Now()
	if err := s.apply(ctx, objects); err != nil {
		return one, err
	}
	one.applied = time.Since(began)
	cmd, err := s.pod(ctx, objects, router, dir, namespace)
	if err != nil {
		return one, err
	}
	stopped := s.crash(ctx)
	r, err := startInstance(ctx, cmd)
	if err != nil {
		return one, err
	}
	err = r.firstLine()
	one.event = time.Since(began)
	if err == nil {
		// With the first event, the router is ready or a moment before.
		one.ready, err = r.ready(ctx)
	}
	err = errors.Join(err, stopped())
	time.Sleep(settle)
	one.rss, _ = r.memory()
	return one, errors.Join(err, r.stop())
}

// readManifests returns the objects for a namespace, the namespace first.
func readManifests(namespace string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(manifests)
	if err != nil {
		return nil, err
	}
	text = []byte(strings.NewReplacer(
		"namespace: deltarouter\n", "namespace: "+namespace+"\n", "namespace: deltarouter}", "namespace: "+namespace+"}",
		"deltarouter:deltarouter:deltarouter", namespace+":deltarouter:deltarouter",
	).Replace(string(text)))
	first := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	first.SetName(namespace)
	objects := []*unstructured.Unstructured{first}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// apply applies the objects as `kubectl apply --server-side` does, discovery included.
func (s *sandbox) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.file)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		_, err = client.Resource(mapping.Resource).Namespace(object.GetNamespace()).
			Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "footprint"})
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return nil
}

// pod returns the command of the router with the arguments, the configuration and the account of
// the applied objects. Only folders and ports differ, which belong to this machine.
func (s *sandbox) pod(ctx context.Context, objects []*unstructured.Unstructured, router, dir, namespace string) (*exec.Cmd, error) {
	var config string
	var args []string
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			config, _, _ = unstructured.NestedString(object.Object, "data", "config.yaml")
		case "StatefulSet":
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			if len(containers) == 1 {
				container, _ := containers[0].(map[string]any)
				args, _, _ = unstructured.NestedStringSlice(container, "args")
			}
		}
	}
	if config == "" || len(args) == 0 {
		return nil, fmt.Errorf("%s has no configuration, or no arguments of the router", manifests)
	}
	config = strings.NewReplacer("/var/lib/deltarouter", filepath.Join(dir, "state"), ":8081", "127.0.0.1:0", "127.0.0.1:8484", "127.0.0.1:0").Replace(config)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	token, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "deltarouter", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	account, err := clientcmd.LoadFromFile(s.file)
	if err != nil {
		return nil, err
	}
	for name := range account.AuthInfos {
		account.AuthInfos[name] = &api.AuthInfo{Token: token.Status.Token}
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*account, kubeconfig); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, router, args...)
	cmd.Env = append(os.Environ(), "DELTAROUTER_CONFIG="+file, "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+namespace, "POD_NAME=deltarouter-0")
	return cmd, nil
}

// crash makes a pod report a restart every few milliseconds, which the configuration of the
// manifests delivers. The returned function ends it.
func (s *sandbox) crash(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		tick := time.NewTicker(changeEvery)
		defer tick.Stop()
		for i := 1; ctx.Err() == nil; i++ {
			patch := fmt.Appendf(nil, `{"status":{"containerStatuses":[{"name":"checkout","image":"checkout","imageID":"","ready":false,`+
				`"restartCount":%d,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`, i)
			_, err := s.client.CoreV1().Pods(sandboxNamespace).Patch(ctx, "pod-0000000", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				failed = err
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		return failed
	}
}
