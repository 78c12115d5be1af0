package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/internal/httpsink"
	"github.com/deltarouter/deltarouter/internal/kubehttp"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// agent is the name of the router in requests and in Events.
const agent = "deltarouter"

// api sends requests to the API server. It sends the bodies of the events unchanged, and reads only
// the status of responses.
type api struct {
	name    string // of the sink
	client  *rest.RESTClient
	own     *http.Client // nil: the client of the host
	timeout time.Duration
	manager string // the configured one; see managerOf
	force   bool
	dryRun  bool

	mu    sync.Mutex
	kinds map[schema.GroupVersion][]metav1.APIResource
}

func newAPI(c *sinkConfig, env plugins.SinkEnv) (*api, error) {
	a := &api{
		name: env.Name, timeout: c.Timeout, manager: c.FieldManager, force: c.Force, dryRun: c.DryRun,
		kinds: make(map[schema.GroupVersion][]metav1.APIResource),
	}
	cfg, client := &rest.Config{}, (*http.Client)(nil)
	var err error
	switch {
	case c.Kubeconfig != "" || c.Context != "":
		if cfg, err = load(c); err != nil {
			return nil, err
		}
		transport, err := kubehttp.TransportFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		client = &http.Client{Transport: transport} // no timeout, because each request has its own
		a.own = client
	case env.API != nil:
		cfg.Host, client = env.API.URL, env.API.Client
	default:
		return nil, errors.New("the router has no cluster here: set kubeconfig")
	}
	concealing := *client
	concealing.Transport = &concealer{cmp.Or[http.RoundTripper](client.Transport, http.DefaultTransport)}
	client = &concealing
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	a.client, err = rest.UnversionedRESTClientForConfigAndClient(cfg, client)
	return a, err
}

// concealer removes the credentials of a request from the answer that refuses it, which becomes the
// text of an error.
type concealer struct{ base http.RoundTripper }

// maxRefusal bounds the text of a refusal that is read, in bytes.
const maxRefusal = 64 << 10

// RoundTrip implements [http.RoundTripper]. The request of the response has the headers that were
// sent.
func (c *concealer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest || resp.Request == nil {
		return resp, err
	}
	secrets := httpsink.Secrets(nil, resp.Request.Header.Values("Authorization"))
	if len(secrets) == 0 {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if closed := resp.Body.Close(); err != nil || closed != nil {
		return nil, errors.Join(err, closed)
	}
	body = httpsink.Redact(body, secrets)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// load reads the sink's own kubeconfig.
func load(c *sinkConfig) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if err := c.policy.Credentials(cfg.ExecProvider != nil, cfg.AuthProvider != nil); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.UserAgent = agent
	return cfg, nil
}

func (a *api) close() {
	if a.own != nil {
		a.own.CloseIdleConnections()
	}
}

// base returns the API path of a group and version.
func base(group, version string) []string {
	if group == "" {
		return []string{"/api", version}
	}
	return []string{"/apis", group, version}
}

// path returns the path of an object, or of its collection if named is false.
func (t *target) path(named bool) []string {
	path := base(t.group, t.version)
	if t.namespace != "" {
		path = append(path, "namespaces", t.namespace)
	}
	if path = append(path, t.resource); named {
		path = append(path, t.name)
	}
	return path
}

// do sends a request once.
func (a *api) do(ctx context.Context, r *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	result := r.MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // with the message, unlike Raw
		return nil, err
	}
	return result.Raw()
}

// send executes an operation of an event, and returns the answer.
func (a *api) send(ctx context.Context, e *event.Event, op *operation, id string) ([]byte, error) {
	r := a.request(e, op, id)
	if a.dryRun {
		r.Param("dryRun", metav1.DryRunAll)
	}
	return a.do(ctx, r)
}

func (a *api) request(e *event.Event, op *operation, id string) *rest.Request {
	managed := func(r *rest.Request) *rest.Request {
		return r.Param("fieldManager", a.managerOf(e.Route)).Param("fieldValidation", metav1.FieldValidationStrict)
	}
	patch := func(kind types.PatchType) *rest.Request {
		path := op.target.path(true)
		if op.subresource != "" {
			path = append(path, op.subresource)
		}
		return managed(a.client.Verb(http.MethodPatch).AbsPath(path...)).SetHeader("Content-Type", string(kind)).Body([]byte(op.body))
	}
	post := func(path []string, body []byte) *rest.Request {
		return managed(a.client.Verb(http.MethodPost).AbsPath(path...)).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	}
	switch op.verb {
	case verbApply:
		return patch(types.ApplyPatchType).Param("force", strconv.FormatBool(a.force || op.force))
	case verbMerge:
		return patch(types.MergePatchType)
	case verbJSON:
		return patch(types.JSONPatchType)
	case verbCreate:
		return post(op.target.path(false), op.body)
	case verbEvict:
		return post(append(op.target.path(true), "eviction"), op.eviction())
	case verbEvent:
		namespace := op.target.namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		at := target{group: "events.k8s.io", version: "v1", resource: "events", namespace: namespace}
		return post(at.path(false), op.event(e, at.namespace, a.name, id))
	}
	return a.client.Verb(http.MethodDelete).AbsPath(op.target.path(true)...).
		SetHeader("Content-Type", runtime.ContentTypeJSON).Body(encode(op.deleteOptions(a.dryRun)))
}

func encode(v any) []byte {
	b, _ := json.Marshal(v) // structs and strings only: never fails
	return b
}

func (o *operation) deleteOptions(dryRun bool) map[string]any {
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if o.grace != nil {
		options["gracePeriodSeconds"] = *o.grace
	}
	if o.target.uid != "" {
		options["preconditions"] = map[string]string{"uid": o.target.uid}
	}
	if o.propagation != "" {
		options["propagationPolicy"] = o.propagation
	}
	if dryRun {
		options["dryRun"] = []string{metav1.DryRunAll}
	}
	return options
}

func (o *operation) eviction() []byte {
	return encode(map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]string{"name": o.target.name, "namespace": o.target.namespace},
		"deleteOptions": o.deleteOptions(false),
	})
}

// event returns the Event. Its name is computed from the id, so a repetition makes the same Event.
func (o *operation) event(e *event.Event, namespace, instance, id string) []byte {
	const longest = 200
	name := o.target.name
	if len(name) > longest || len(validation.IsDNS1123Subdomain(name)) > 0 {
		name = agent
	}
	sum := sha256.Sum256([]byte(id))
	seen := e.Time
	if seen.IsZero() {
		seen = time.Now()
	}
	regarding := map[string]string{
		"apiVersion": schema.GroupVersion{Group: o.target.group, Version: o.target.version}.String(), "kind": o.target.kind,
		"namespace": o.target.namespace, "name": o.target.name, "uid": o.target.uid,
	}
	if o.own {
		regarding["resourceVersion"] = e.K8sResourceVersion
	}
	return encode(map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":  map[string]string{"name": name + "." + hex.EncodeToString(sum[:8]), "namespace": namespace},
		"eventTime": seen.UTC().Format(metav1.RFC3339Micro), "reportingController": agent, "reportingInstance": instance,
		"type": o.note.kind, "reason": o.note.reason, "action": o.note.action, "note": o.note.text, "regarding": regarding,
	})
}

// find requests the resources of a group and version, for the resource of a kind or the kind of a
// resource. Answers are cached. Missing versions are not, because events may name any number of
// them. If a cached answer lacks the resource, it is requested again.
func (a *api) find(ctx context.Context, t *target) (metav1.APIResource, error) {
	gv := schema.GroupVersion{Group: t.group, Version: t.version}
	is := func(r metav1.APIResource) bool {
		return !bytes.ContainsRune([]byte(r.Name), '/') && (t.resource == "" || r.Name == t.resource) && (t.kind == "" || r.Kind == t.kind)
	}
	a.mu.Lock()
	known := a.kinds[gv]
	a.mu.Unlock()
	if i := slices.IndexFunc(known, is); i >= 0 {
		return known[i], nil
	}
	text, err := a.do(ctx, a.client.Verb(http.MethodGet).AbsPath(base(t.group, t.version)...))
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return metav1.APIResource{}, err
	}
	if len(list.APIResources) > 0 {
		a.mu.Lock()
		a.kinds[gv] = list.APIResources
		a.mu.Unlock()
	}
	if i := slices.IndexFunc(list.APIResources, is); i >= 0 {
		return list.APIResources[i], nil
	}
	return metav1.APIResource{}, plugins.Reject(fmt.Errorf("the API server does not have %s: see `kubectl api-resources`", t.resourceText()))
}

// metadata requests the metadata of an object.
func (a *api) metadata(ctx context.Context, t *target) (*metav1.ObjectMeta, error) {
	r := a.client.Verb(http.MethodGet).AbsPath(t.path(true)...).SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	text, err := a.do(ctx, r)
	if err != nil {
		return nil, err
	}
	var object metav1.PartialObjectMetadata
	err = json.Unmarshal(text, &object)
	return &object.ObjectMeta, err
}

// labels returns the labels of a namespace; nil: the namespace does not exist.
func (a *api) labels(ctx context.Context, namespace string) (labels.Set, error) {
	found, err := a.metadata(ctx, &target{version: "v1", resource: "namespaces", name: namespace})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return labels.Merge(found.Labels, nil), nil
}
