package sandboxtest_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestMain(m *testing.M) { sandboxtest.Main(m) }

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

func client(t *testing.T, cfg *rest.Config) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(cfg)
	must.Succeed(t, err)
	return c
}

// eventually polls until ok, since many effects are visible a moment later.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within the deadline: %s", what)
		}
	}
}

const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
`

func TestApply(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	s.Apply(t, ns, `
# A pod with a status.
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {phase: Running, containerStatuses: [{name: c, image: i, imageID: "", ready: true, restartCount: 7}]}
---
`+configMap)
	pod, err := s.Dynamic().Resource(pods).Namespace(ns).Get(t.Context(), "p", metav1.GetOptions{})
	must.Succeed(t, err)
	status, _ := pod.Object["status"].(map[string]any)
	if statuses, _ := status["containerStatuses"].([]any); len(statuses) != 1 || status["phase"] != "Running" {
		t.Errorf("got status %v", status)
	}
}

func TestSharedIsShared(t *testing.T) {
	first, second := sandboxtest.Start(t), sandboxtest.Start(t)
	if first != second {
		t.Error("two sandboxes")
	}
}

func TestGrant(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	list := func() error {
		_, err := client(t, s.LimitedRESTConfig()).Resource(configMaps).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Fatalf("got error %v, want forbidden", err)
	}
	revoke := s.Grant(t, ns, "", []string{"configmaps"}, []string{"list"})
	eventually(t, "allowed", func() bool { return list() == nil })
	revoke()
	eventually(t, "forbidden again", func() bool { return apierrors.IsForbidden(list()) })
	s.Grant(t, "", "", []string{"configmaps"}, []string{"list"})
	eventually(t, "allowed everywhere", func() bool { return list() == nil })
}

func TestRequests(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	cfg := s.RESTConfig()
	cfg.UserAgent = "requests-test"
	c := client(t, cfg).Resource(configMaps).Namespace(ns)
	before := s.RequestCount(t, "LIST", "configmaps")
	list, err := c.List(t.Context(), metav1.ListOptions{})
	must.Succeed(t, err)
	w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	must.Succeed(t, err)
	defer w.Stop()
	mine := func(verb string) func(sandboxtest.Request) bool {
		return func(r sandboxtest.Request) bool {
			return r.UserAgent == "requests-test" && r.Verb == verb && r.Namespace == ns && r.Code == 200
		}
	}
	for _, verb := range []string{"list", "watch"} {
		eventually(t, verb+" in the audit log", func() bool { return len(s.Requests(t, mine(verb))) == 1 })
	}
	eventually(t, "list counted", func() bool { return s.RequestCount(t, "LIST", "configmaps") > before })
	if n := s.OpenWatches(t, "configmaps"); n < 1 {
		t.Errorf("%d open watches", n)
	}
}

func TestSeed(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{Seed: "../../examples/cluster"})
	list, err := s.Dynamic().Resource(widgets).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
}

// startWatch watches configmaps from a resourceVersion; "" is the present one.
func startWatch(ctx context.Context, t *testing.T, cfg *rest.Config, ns, rv string) (watch.Interface, string) {
	t.Helper()
	c := client(t, cfg).Resource(configMaps).Namespace(ns)
	if rv == "" {
		list, err := c.List(ctx, metav1.ListOptions{})
		must.Succeed(t, err)
		rv = list.GetResourceVersion()
	}
	w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: rv})
	must.Succeed(t, err)
	t.Cleanup(w.Stop)
	return w, rv
}

// waitClosed waits for the end of a watch.
func waitClosed(t *testing.T, w watch.Interface) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case _, ok := <-w.ResultChan():
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the watch is still open")
		}
	}
}

func TestFaults(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	w, rv := startWatch(t.Context(), t, s.RESTConfig(), ns, "")

	s.KillAPIServer(t)
	waitClosed(t, w)
	s.StartAPIServer(t)

	w, _ = startWatch(t.Context(), t, s.RESTConfig(), ns, "")
	s.StopAPIServer(t)
	waitClosed(t, w)
	s.StartAPIServer(t)

	s.Apply(t, ns, configMap)
	s.StopAPIServer(t)
	s.CompactEtcd(t)
	s.StartAPIServer(t)
	if code := firstCode(t, s, ns, rv); code != 410 {
		t.Errorf("a watch from before the compaction: got %d, want 410", code)
	}
}

// firstCode returns the code with which a watch is refused, as the answer or as its first event; 0
// if it is accepted.
func firstCode(t *testing.T, s *sandboxtest.Sandbox, ns, rv string) int32 {
	t.Helper()
	c := client(t, s.RESTConfig()).Resource(configMaps).Namespace(ns)
	w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv})
	if err == nil {
		defer w.Stop()
		event, ok := <-w.ResultChan()
		if !ok {
			return 0
		}
		err = apierrors.FromObject(event.Object)
	}
	if status := apierrors.APIStatus(nil); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		status = err.(apierrors.APIStatus)
		return status.Status().Code
	}
	return 0
}

func TestRestoreGoesBack(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{})
	ns := s.Namespace(t)
	saved := s.SaveEtcd(t)
	s.Apply(t, ns, configMap)
	s.RestoreEtcd(t, saved)
	_, err := s.Dynamic().Resource(configMaps).Namespace(ns).Get(t.Context(), "c", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
}

func TestAPIServerArgs(t *testing.T) {
	s := sandboxtest.New(t, sandboxtest.Options{APIServerArgs: []string{"--watch-cache=false"}})
	ns := s.Namespace(t)
	_, rv := startWatch(t.Context(), t, s.RESTConfig(), ns, "")
	s.Apply(t, ns, configMap)
	s.Apply(t, ns, configMap+"data: {a: b}\n") // the latest change itself is kept
	s.CompactEtcd(t)
	if code := firstCode(t, s, ns, rv); code != 410 {
		t.Errorf("without watch cache, a watch from before the compaction: got %d, want 410", code)
	}
}

func TestProxy(t *testing.T) {
	s := sandboxtest.Start(t)
	ns := s.Namespace(t)
	p := s.Proxy(t)

	w, rv := startWatch(t.Context(), t, p.RESTConfig(), ns, "")
	p.Cut()
	waitClosed(t, w)

	w, _ = startWatch(t.Context(), t, p.RESTConfig(), ns, rv)
	p.Block()
	s.Apply(t, ns, configMap)
	select {
	case e := <-w.ResultChan():
		t.Fatalf("got %v through a blocked proxy", e)
	case <-time.After(200 * time.Millisecond): // there is no event to wait for
	}
	p.Unblock()
	select {
	case e := <-w.ResultChan():
		if e.Type != watch.Added {
			t.Errorf("got %v", e)
		}
	case <-time.After(time.Minute):
		t.Error("nothing came after Unblock")
	}

	p.Refuse()
	waitClosed(t, w)
	// client-go retries a reset for a while.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := client(t, p.RESTConfig()).Resource(configMaps).Namespace(ns).List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("listed through a refusing proxy")
	}
	eventually(t, "no connections", func() bool { return p.Connections() == 0 })
	p.Unblock()
	startWatch(t.Context(), t, p.RESTConfig(), ns, "")

	p.Block()
	p.Cut() // also ends held connections
	eventually(t, "no connections", func() bool { return p.Connections() == 0 })
}

// TestBorrow: the next test gets the sandbox of a former one, unless a server of it was stopped.
func TestBorrow(t *testing.T) {
	var first, second *sandboxtest.Sandbox
	t.Run("first", func(t *testing.T) {
		first = sandboxtest.Borrow(t)
		first.Namespace(t)
	})
	t.Run("second", func(t *testing.T) {
		second = sandboxtest.Borrow(t)
		second.KillAPIServer(t)
	})
	if first != second {
		t.Error("the second test has another sandbox")
	}
	t.Run("third", func(t *testing.T) {
		if sandboxtest.Borrow(t) == second {
			t.Error("the third test has a sandbox whose API server is stopped")
		}
	})
}
