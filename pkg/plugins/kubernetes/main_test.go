package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/internal/outdated"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(sandboxtest.Wrap(m)) }

// kinds are the resources of the tests.
var kinds = map[string]*event.Resource{
	"v1/configmaps":       {Cluster: "test", Kind: "ConfigMap", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}},
	"v1/secrets":          {Cluster: "test", Kind: "Secret", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}},
	"v1/pods":             {Cluster: "test", Kind: "Pod", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}},
	"v1/namespaces":       {Cluster: "test", Kind: "Namespace", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}},
	"apps/v1/deployments": {Cluster: "test", Kind: "Deployment", GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
	"events.k8s.io/v1/events": {
		Cluster: "test", Kind: "Event", GroupVersionResource: schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"},
	},
	"policy/v1/poddisruptionbudgets": {
		Cluster: "test", Kind: "PodDisruptionBudget",
		GroupVersionResource: schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	},
}

// cluster is a sandbox and a namespace in it.
type cluster struct {
	*sandboxtest.Sandbox

	t    *testing.T
	ns   string
	sent atomic.Int64 // the number of writes of its sinks
}

func start(t *testing.T) *cluster {
	t.Helper()
	s := sandboxtest.Start(t)
	return &cluster{Sandbox: s, t: t, ns: s.Namespace(t)}
}

// apply creates objects in the namespace.
func (c *cluster) apply(manifests string) { c.t.Helper(); c.Apply(c.t, c.ns, manifests) }

// get returns an object of the namespace; nil: it does not exist.
func (c *cluster) get(resource, name string) *unstructured.Unstructured {
	c.t.Helper()
	return c.find(resource, c.ns, name)
}

func (c *cluster) find(resource, namespace, name string) *unstructured.Unstructured {
	c.t.Helper()
	o, err := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(c.t, err)
	return o
}

// list returns the objects of the namespace.
func (c *cluster) list(resource string) []unstructured.Unstructured {
	c.t.Helper()
	list, err := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(c.ns).List(c.t.Context(), metav1.ListOptions{})
	must.Succeed(c.t, err)
	return list.Items
}

// maps returns the names of the ConfigMaps of the namespace that begin with prefix.
func (c *cluster) maps(prefix string) (names []string) {
	c.t.Helper()
	for _, o := range c.list("v1/configmaps") {
		if strings.HasPrefix(o.GetName(), prefix) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// remove deletes an object of the namespace without a grace period.
func (c *cluster) remove(resource, name string) {
	c.t.Helper()
	now := int64(0)
	err := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(c.ns).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	must.Succeed(c.t, err)
}

// configMap creates a ConfigMap with k: v.
func (c *cluster) configMap(name string) *unstructured.Unstructured {
	c.t.Helper()
	c.apply(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {k: v}}", name))
	return c.get("v1/configmaps", name)
}

// deltaOf returns an Updated delta of an object.
func deltaOf(t testing.TB, resource string, o *unstructured.Unstructured) *event.Delta {
	t.Helper()
	text, err := o.MarshalJSON()
	must.Succeed(t, err)
	object, err := event.ParseObject(kinds[resource], string(text))
	must.Succeed(t, err)
	return &event.Delta{Source: "src", Op: event.Updated, Old: object, New: object, Seen: time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)}
}

// eventOf returns an event of the route r about an object. In its data, $ns is the namespace.
func (c *cluster) eventOf(resource string, o *unstructured.Unstructured, data string) event.Event {
	c.t.Helper()
	return event.New(deltaOf(c.t, resource, o), "r", 0, []byte(strings.ReplaceAll(data, "$ns", c.ns)))
}

// events returns one event for each data, with different ids.
func (c *cluster) events(o *unstructured.Unstructured, data ...string) (batch []event.Event) {
	c.t.Helper()
	for i, d := range data {
		e := c.eventOf("v1/configmaps", o, d)
		e.ID = fmt.Sprintf("%s-%d", e.ID, i)
		batch = append(batch, e)
	}
	return batch
}

// label sets the labels of the namespace.
func (c *cluster) label(labels string) {
	c.t.Helper()
	c.patch("v1/namespaces", "", c.ns, `{"metadata":{"labels":`+labels+`}}`)
}

// unfinalize removes the finalizers of a ConfigMap, which may be gone.
func (c *cluster) unfinalize(name string) {
	ctx := context.WithoutCancel(c.t.Context())
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	client := c.Dynamic().Resource(kinds["v1/configmaps"].GroupVersionResource).Namespace(c.ns)
	if _, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		c.t.Error(err)
	}
}

func (c *cluster) patch(resource, namespace, name, patch string) {
	c.t.Helper()
	client := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(namespace)
	if _, err := client.Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// clockAt returns a fake clock.
func clockAt() *timer.Fake { return timer.NewFake(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) }

// env returns an environment whose client ends with the test.
func env(t *testing.T, cfg *rest.Config) plugins.SinkEnv {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	must.Succeed(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return plugins.SinkEnv{
		Env: plugins.Env{Name: "k", Log: slog.New(slog.DiscardHandler)}, API: &plugins.API{URL: cfg.Host, Client: &http.Client{Transport: client.Transport}},
	}
}

// counting is a transport that counts writes.
type counting struct {
	http.RoundTripper

	writes *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// open opens a sink. In its configuration, $ns is the namespace.
func (c *cluster) open(config string) plugins.Sink {
	c.t.Helper()
	environment := env(c.t, c.RESTConfig())
	environment.API.Client.Transport = counting{environment.API.Client.Transport, &c.sent}
	return open(c.t, strings.ReplaceAll(config, "$ns", c.ns), environment)
}

func open(t *testing.T, config string, env plugins.SinkEnv) plugins.Sink {
	t.Helper()
	return sinktest.OpenIn(t, kubernetes.Kind(), config, env)
}

// all grants everything in the namespace.
const all = `
allow:
  - {resource: v1/configmaps, namespaces: [$ns], verbs: [apply, create, merge, json, delete, event]}
  - {resource: v1/secrets, namespaces: [$ns], verbs: [apply, create, merge]}
  - {resource: v1/pods, namespaces: [$ns], verbs: [delete, evict, merge, event]}
  - {resource: v1/pods, subresources: [status], namespaces: [$ns], verbs: [apply, merge, json]}
  - {resource: apps/v1/deployments, namespaces: [$ns], verbs: [apply, merge, delete]}
  - {resource: apps/v1/deployments, subresources: [scale, status], namespaces: [$ns], verbs: [merge, json]}
  - {resource: v1/namespaces, namespaces: [$ns], verbs: [merge]}
`

// write delivers one event and returns its error.
func write(t *testing.T, s plugins.Sink, e event.Event) error {
	t.Helper()
	errs := s.Write(t.Context(), []event.Event{e})
	if errs == nil {
		return nil
	}
	if len(errs) != 1 {
		t.Fatalf("%d errors for an event", len(errs))
	}
	return errs[0]
}

// kindOf returns the class of an error as text.
func kindOf(err error) string {
	switch {
	case err == nil:
		return "delivered"
	case plugins.ClassOf(err) == plugins.Rejected:
		return "rejected"
	case plugins.ClassOf(err) == plugins.Paused:
		return "paused"
	case outdated.Is(err):
		return "outdated"
	case plugins.ClassOf(err) == plugins.Postponed:
		return "postponed"
	}
	return "unavailable"
}

// field returns a field of an object as JSON; null: it is missing.
func field(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return "no object"
	}
	v, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(v)
	return string(b)
}
