package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/kubernetes"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
)

func TestContract(t *testing.T) {
	k := start(t)
	plugintest.RunSink(t, plugintest.Sink{
		Kind: kubernetes.Kind(), Config: strings.ReplaceAll(all, "$ns", k.ns), Env: env(t, k.RESTConfig()),
		Data: func(d *event.Delta) []byte {
			return fmt.Appendf(nil, `{"apply":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"k":"v"}}}`, d.Key().Name, k.ns)
		},
	})
	if n := len(k.maps("")); n != 7 {
		t.Errorf("there are %d ConfigMaps, want one for each delta", n)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ config, place, want string }{
		{"{}", "", "allow is missing"},
		{"allow: []", "allow", "is empty"},
		{"allow: [{verbs: merge}]", "allow[0]", "resource is missing"},
		{"allow: [{resource: v1/pods}]", "allow[0]", "verbs is missing"},
		{"allow: [{resource: pods, verbs: merge}]", "allow[0].resource", "must be [group/]version/resource"},
		{"allow: [{resource: v1/pods/status, verbs: merge}]", "allow[0].resource", "write v1/pods, and status as the subresource"},
		{"allow: [{resource: apps/v1/deployments/scale, verbs: merge}]", "allow[0].resource", "write apps/v1/deployments, and scale as the subresource"},
		{"allow: [{resource: v1/pods, verbs: patch}]", "allow[0].verbs", "must be apply, create"},
		{"allow: [{resource: v1/pods, subresources: [log], verbs: merge}]", "allow[0].subresources", "must be status or scale"},
		{"allow: [{resource: v1/pods, subresources: [status], verbs: delete}]", "allow[0].verbs", "delete is not for subresources"},
		{"allow: [{resource: apps/v1/deployments, subresources: [scale], verbs: apply}]", "allow[0].verbs", "apply is not for the subresource scale"},
		{"allow: [{resource: v1/nodes, verbs: evict}]", "allow[0].verbs", "evict is for v1/pods"},
		{"allow: [{resource: v1/pods, namespaces: ['*'], verbs: merge}]", "allow[0].namespaces", "leave namespaces out for all"},
		{"allow: [{resource: v1/pods, namespaces: [a, ''], verbs: merge}]", "allow[0].namespaces", "is not a valid namespace"},
		{"allow: [{resource: v1/pods, namespaces: a, namespaceSelector: b=c, verbs: merge}]", "allow[0].namespaceSelector", "either namespaces or namespaceSelector"},
		{"allow: [{resource: v1/pods, namespaceSelector: 'b in', verbs: merge}]", "allow[0].namespaceSelector", "is not a label selector"},
		{"{allow: [{resource: v1/pods, verbs: merge}], maxDeletes: 10}", "maxDeletes", "as in 10/1m"},
		{"{allow: [{resource: v1/pods, verbs: merge}], maxWrites: 10/1}", "maxWrites", "as in 10/1m"},
		{"{allow: [{resource: v1/pods, verbs: merge}], maxPerObject: -1/1m}", "maxPerObject", "as in 10/1m"},
		{"{allow: [{resource: v1/pods, verbs: merge}], maxPerObject: 1/1ms}", "maxPerObject", "as in 10/1m"},
		{"{allow: [{resource: v1/pods, verbs: merge}], fieldManager: ''}", "fieldManager", "1 to 128"},
		{"{allow: [{resource: v1/pods, verbs: merge}], timeout: 0s}", "timeout", "at least"},
	} {
		problems := kubernetes.Kind().Check(plugintest.Node(t, c.config))
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Path, c.place) || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%s: %v, want %s: %s", c.config, problems, c.place, c.want)
		}
	}
}

// losing is a transport that executes writes and loses the responses of some of them. If it
// refuses, it does not execute these writes.
type losing struct {
	http.RoundTripper

	left   *atomic.Int64
	answer func() (*http.Response, error) // nil: the write is executed
}

func (l losing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || l.left.Add(-1) < 0 {
		return l.RoundTripper.RoundTrip(r)
	}
	if l.answer != nil {
		return l.answer()
	}
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		err = errors.Join(resp.Body.Close(), io.ErrUnexpectedEOF)
	}
	return nil, err
}

// TestLostAnswers: a write whose response is lost makes the sink unavailable and ends its batch. It
// takes effect once: the retry finds its work done, and the limits count it once.
func TestLostAnswers(t *testing.T) {
	// Guarantee: kubernetes-limits
	for name, data := range map[string]string{
		"delete": `{"delete":{}}`, "apply": `{"apply":{"data":{"x":"y"}}}`, "create": `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made","namespace":"$ns"}}}`,
		"event": `{"event":{"reason":"R"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			var lose atomic.Int64
			environment := env(t, k.RESTConfig())
			environment.Clock = clockAt()
			environment.API.Client.Transport = losing{environment.API.Client.Transport, &lose, nil}
			sink := open(t, strings.ReplaceAll(all+"maxDeletes: 2/1m\nmaxWrites: 2/1m\n", "$ns", k.ns), environment)
			batch := []event.Event{k.eventOf("v1/configmaps", k.configMap("a"), data), k.eventOf("v1/configmaps", k.configMap("b"), `{"delete":{}}`)}
			lose.Store(3)
			for range 3 {
				errs := sink.Write(t.Context(), batch)
				if len(errs) != 2 || kindOf(errs[0]) != "unavailable" || kindOf(errs[1]) != "unavailable" || !strings.Contains(errs[0].Error(), "closed before the response") {
					t.Fatal(errs)
				}
			}
			if errs := sink.Write(t.Context(), batch); errs != nil {
				t.Fatal(errs)
			}
			if k.get("v1/configmaps", "b") != nil || name == "event" && len(k.list("events.k8s.io/v1/events")) != 1 {
				t.Error("it is not done, or twice")
			}
			if err := write(t, sink, k.eventOf("v1/configmaps", k.configMap("c"), `{"delete":{}}`)); kindOf(err) != "paused" {
				t.Errorf("the third write is %s: %v", kindOf(err), err)
			}
		})
	}
}

// TestAnswers: an error that concerns the API server, or the router's rights, is retried. A
// requested delay is respected.
func TestAnswers(t *testing.T) {
	k := start(t)
	o := k.configMap("a")
	for status, want := range map[int]string{
		401: "unavailable", 403: "rejected", 405: "rejected", 408: "unavailable", 413: "rejected", 429: "unavailable", 500: "unavailable", 503: "unavailable", 504: "unavailable",
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var asked atomic.Int64
			asked.Store(100)
			environment := env(t, k.RESTConfig())
			environment.API.Client.Transport = losing{environment.API.Client.Transport, &asked, func() (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}, Body: io.NopCloser(strings.NewReader("s3cret"))}, nil
			}}
			sink := open(t, strings.ReplaceAll(all, "$ns", k.ns), environment)
			for _, data := range []string{`{"merge":{"data":{"x":"y"}}}`, `{"apply":{"data":{"x":"y"}}}`, `{"delete":{}}`} {
				err := write(t, sink, k.eventOf("v1/configmaps", o, data))
				if kindOf(err) != want {
					t.Errorf("%s is %s: %v", data, kindOf(err), err)
				}
				if (status == 429 || status >= 500) && plugins.RetryAfter(err).Seconds() != 7 {
					t.Errorf("%s is tried again after %v", data, plugins.RetryAfter(err))
				}
			}
			if n := 100 - asked.Load(); n != 3 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// TestTimeout: an unresponsive API server is unavailable after the timeout, or when the context
// ends.
func TestTimeout(t *testing.T) {
	k := start(t)
	e := k.eventOf("v1/configmaps", k.configMap("a"), `{"merge":{"data":{"x":"y"}}}`)
	proxy := k.Proxy(t)
	sink := open(t, strings.ReplaceAll(all+"timeout: 50ms\n", "$ns", k.ns), env(t, proxy.RESTConfig()))
	proxy.Block()
	if err := write(t, sink, e); kindOf(err) != "unavailable" || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if errs := sink.Write(ctx, []event.Event{e, e}); len(errs) != 2 || !errors.Is(errs[0], context.Canceled) || kindOf(errs[1]) != "unavailable" {
		t.Error(errs)
	}
	proxy.Refuse()
	if err := write(t, sink, e); kindOf(err) != "unavailable" {
		t.Error(err)
	}
}

// TestNoCluster: a sink needs the router's cluster or a kubeconfig.
func TestNoCluster(t *testing.T) {
	const grants = "allow: [{resource: v1/pods, verbs: merge}]\n"
	for config, want := range map[string]string{grants: "set kubeconfig", grants + "kubeconfig: /none/such": "kubeconfig: "} {
		if _, err := kubernetes.Kind().Open(t.Context(), plugintest.Node(t, config), plugins.SinkEnv{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f := kubernetes.Kind()
	if files := f.(plugins.FileReader).Files(plugintest.Node(t, grants+"kubeconfig: /none/such")); len(files) != 1 {
		t.Errorf("its files are %q", files)
	}
	if rights := f.(plugins.RightsRequester).Rights(plugintest.Node(t, grants+"kubeconfig: /none/such")); rights != nil {
		t.Errorf("the router's own rights are asked for: %v", rights)
	}
}

// TestProbe: with a kubeconfig of its own, a probe tests the rights that the grants always need,
// and reports missing ones. It does not report rights that may exist in some namespaces only.
func TestProbe(t *testing.T) {
	k := start(t)
	probe := func(kubeconfig, grants string) string {
		config := fmt.Sprintf("kubeconfig: %q\nallow: [%s]\n", kubeconfig, grants)
		if err := kubernetes.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config)); err != nil {
			return err.Error()
		}
		return ""
	}
	const selected = "{resource: apps/v1/deployments, namespaceSelector: a=b, verbs: merge}"
	if said := probe(k.LimitedKubeconfig(), selected); said != "allow[0].resource: may not get namespaces" {
		t.Errorf("it says %q", said)
	}
	if said := probe(k.LimitedKubeconfig(), "{resource: v1/pods, namespaces: "+k.ns+", verbs: [evict, delete]}"); !strings.Contains(said, "may not create pods/eviction in namespace \""+k.ns+"\"; ") ||
		!strings.Contains(said, "may not delete pods in namespace \""+k.ns+"\"") || strings.Contains(said, "get") {
		t.Errorf("it says %q", said)
	}
	if said := probe(k.Kubeconfig(), selected); said != "" {
		t.Errorf("it says %q", said)
	}
	if said := probe(k.Kubeconfig()+".none", selected); !strings.Contains(said, "kubeconfig") {
		t.Errorf("without a kubeconfig it says %q", said)
	}
}
