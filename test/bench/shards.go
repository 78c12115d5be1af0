package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	// shardNamespaces is the number of the namespaces of the cluster, mapBytes the size of an
	// object.
	shardNamespaces = 100
	mapBytes        = 1 << 10
	shardChanges    = 2000
	shardSettle     = 3 * time.Second
)

// The fields by whose hash an API server shards.
const (
	byUID       = "object.metadata.uid"
	byNamespace = "object.metadata.namespace"
)

// cuts returns the bounds between n shards; one shard has none.
type cuts func(n int) []uint64

// equal are bounds at equal distances.
func equal(n int) (bounds []uint64) {
	for i := 1; i < n; i++ {
		bounds = append(bounds, math.MaxUint64/uint64(n)*uint64(i)) //nolint:gosec // small
	}
	return bounds
}

// quantiles are bounds that leave the same number of namespaces in each shard.
func quantiles(n int) (bounds []uint64) {
	hashes := make([]uint64, shardNamespaces)
	for i := range hashes {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(namespaceOf(i)))
		hashes[i] = sum.Sum64()
	}
	slices.Sort(hashes)
	for i := 1; i < n; i++ {
		bounds = append(bounds, hashes[shardNamespaces*i/n])
	}
	return bounds
}

const shardConfig = `version: 1
cluster: {name: bench, kubeconfig: %q}
listen: {probes: "127.0.0.1:0"}
sources:
  maps: {resource: v1/configmaps}
sinks: {none: {discard: {}}}
routes:
  - {name: all, from: maps, to: none}
`

// shards measures sharded list and watch (KEP-5866) on the sandbox with its feature gate: one
// router that watches all ConfigMaps, and two and four that each watch a shard. The routers know
// nothing of shards: a proxy before each adds the selector to the request. It prints the objects
// of each router, the time until all are ready, the CPU of the API server (with etcd) and of the
// routers until then, their memory, and the CPU of the same changes. The first row has the changes
// without a router.
func shards(router, sandboxBinary string, objects int) error {
	ctx := context.Background()
	router, dir, remove, err := workplace(router)
	if err != nil {
		return err
	}
	defer remove()
	s, err := newSandbox(ctx, sandboxBinary, filepath.Join(dir, "cluster"), 0, "--feature-gates=ShardedListAndWatch=true")
	if err != nil {
		return err
	}
	if err = s.fillMaps(ctx, objects); err == nil {
		honoured, asked := shardInfo(ctx, s.client.CoreV1().RESTClient())
		err = asked
		fmt.Printf("the server names the selector in a list: %v\n", honoured)
		fmt.Printf("%d ConfigMaps of 1 KB in %d namespaces, %d changes\n", objects, shardNamespaces, shardChanges)
		fmt.Println("shards  by                         bounds     ready    CPU list: API, routers        CPU changes: API, routers    MB of each, objects of each")
		for _, test := range []struct {
			shards int
			field  string
			bounds string
			cuts   cuts
		}{
			{0, "", "", nil},
			{1, "", "", nil},
			{2, byUID, "equal", equal},
			{4, byUID, "equal", equal},
			{2, byNamespace, "equal", equal},
			{4, byNamespace, "equal", equal},
			{2, byNamespace, "quantiles", quantiles},
			{4, byNamespace, "quantiles", quantiles},
		} {
			var selectors []string
			if test.cuts != nil {
				selectors = shardSelectors(test.field, test.cuts(test.shards))
			} else {
				selectors = make([]string, test.shards)
			}
			err = errors.Join(err, s.sharded(ctx, router, dir, fmt.Sprintf("%6d  %-25s  %-9s", test.shards, test.field, test.bounds), selectors))
		}
	}
	return errors.Join(err, s.close())
}

// fillMaps makes the namespaces and the objects.
func (s *sandbox) fillMaps(ctx context.Context, objects int) error {
	for i := range shardNamespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i)}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return inParallel(objects, func(i int) error {
		one := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%07d", i)}, Data: map[string]string{"text": strings.Repeat("x", mapBytes)},
		}
		_, err := s.client.CoreV1().ConfigMaps(namespaceOf(i%shardNamespaces)).Create(ctx, one, metav1.CreateOptions{})
		return err
	})
}

// shardSelectors returns the selectors of the shards with bounds between them.
func shardSelectors(field string, bounds []uint64) (selectors []string) {
	start := "0x0000000000000000"
	for _, bound := range bounds {
		end := fmt.Sprintf("0x%016x", bound)
		selectors = append(selectors, fmt.Sprintf("shardRange(%s, '%s', '%s')", field, start, end))
		start = end
	}
	return append(selectors, fmt.Sprintf("shardRange(%s, '%s', '0x10000000000000000')", field, start))
}

// shard is a router with its proxy.
type shard struct {
	cmd   *exec.Cmd
	proxy *httptest.Server
	*process
}

// startShard starts a router whose requests for the objects have the selector.
func (s *sandbox) startShard(ctx context.Context, router, dir, selector string) (*shard, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.file)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if query := r.Out.URL.Query(); selector != "" && strings.HasSuffix(r.Out.URL.Path, "/configmaps") {
			query.Set("shardSelector", selector)
			r.Out.URL.RawQuery = query.Encode()
		}
	}}
	one := &shard{proxy: httptest.NewServer(proxy)}
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	err = clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"proxy": {Server: one.proxy.URL}},
		Contexts:       map[string]*api.Context{"proxy": {Cluster: "proxy"}},
		CurrentContext: "proxy",
	}, kubeconfig)
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(nil, shardConfig, kubeconfig), 0o600)
	}
	if err != nil {
		return nil, err
	}
	one.cmd = exec.CommandContext(ctx, router, "-config", file)
	stderr, err := one.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := one.cmd.Start(); err != nil {
		return nil, err
	}
	probes := make(chan string, 1)
	go readLog(stderr, probes)
	one.process = &process{url: strings.TrimSuffix(<-probes, "/metrics")}
	return one, nil
}

// objects returns the number of objects in the cache.
func (s *shard) objects() int {
	for line := range strings.Lines(s.get("/metrics")) {
		if text, ok := strings.CutPrefix(line, `deltarouter_source_objects{source="maps"} `); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return int(n)
		}
	}
	return 0
}

func (s *shard) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	err := s.cmd.Wait()
	s.proxy.CloseClientConnections()
	s.proxy.Close()
	return err
}

// sharded measures a router for each selector.
func (s *sandbox) sharded(ctx context.Context, router, dir, title string, selectors []string) error {
	var all []*shard
	began, before := time.Now(), useOf(s.cmd.Process.Pid)
	for i, selector := range selectors {
		folder := filepath.Join(dir, fmt.Sprint("shard", i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		one, err := s.startShard(ctx, router, folder, selector)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	for _, one := range all {
		for one.get("/readyz") == "" {
			time.Sleep(10 * time.Millisecond)
		}
	}
	took := time.Since(began)
	time.Sleep(shardSettle)
	listed, each := useOf(s.cmd.Process.Pid), usesOf(all)
	if err := s.changeMaps(ctx); err != nil {
		return err
	}
	time.Sleep(shardSettle)
	changed, after := useOf(s.cmd.Process.Pid), usesOf(all)
	list, changes, memory, objects := "", "", "", ""
	for i, one := range all {
		list += fmt.Sprintf(" %.2f", each[i].cpu.Seconds())
		changes += fmt.Sprintf(" %.2f", (after[i].cpu - each[i].cpu).Seconds())
		memory += fmt.Sprintf(" %d", after[i].rss)
		objects += fmt.Sprintf(" %d", one.objects())
	}
	fmt.Printf("%s  %6.2f s  %6.2f,%-21s  %6.2f,%-21s %s,%s\n", title, took.Seconds(),
		(listed.cpu - before.cpu).Seconds(), list, (changed.cpu - listed.cpu).Seconds(), changes, memory, objects)
	var err error
	for _, one := range slices.Backward(all) {
		err = errors.Join(err, one.stop())
	}
	return err
}

func usesOf(all []*shard) (uses []use) {
	for _, one := range all {
		uses = append(uses, useOf(one.cmd.Process.Pid))
	}
	return uses
}

// changeMaps changes objects in all namespaces.
func (s *sandbox) changeMaps(ctx context.Context) error {
	return inParallel(shardChanges, func(i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, time.Now().UnixNano())
		name := fmt.Sprintf("map-%07d", i%shardNamespaces)
		_, err := s.client.CoreV1().ConfigMaps(namespaceOf(i%shardNamespaces)).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// shardInfo reports whether a server honours a selector: it then names it in the metadata of a
// list.
func shardInfo(ctx context.Context, client rest.Interface) (bool, error) {
	var list metav1.PartialObjectMetadataList
	text, err := client.Get().AbsPath("/api/v1/configmaps").Param("limit", "1").Param("shardSelector", shardSelectors(byUID, nil)[0]).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	return list.ShardInfo != nil, err
}
