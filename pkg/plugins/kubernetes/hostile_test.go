package kubernetes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// others describes objects that the sinks of a test may not write: the namespace other with its
// content, the namespaces whose names begin with it, the namespace x, and the Secrets of the test's
// own namespace. It excludes the namespaces of other tests, which run at the same time.
func (c *cluster) others(other string) string {
	c.t.Helper()
	var all []string
	add := func(resource, namespace string) {
		list, err := c.Dynamic().Resource(kinds[resource].GroupVersionResource).Namespace(namespace).List(c.t.Context(), metav1.ListOptions{})
		must.Succeed(c.t, err)
		for i := range list.Items {
			o := &list.Items[i]
			if resource == "v1/namespaces" && o.GetName() != "x" && !strings.HasPrefix(o.GetName(), other) {
				continue
			}
			all = append(all, strings.Join([]string{resource, o.GetNamespace(), o.GetName(), o.GetResourceVersion()}, " "))
		}
	}
	add("v1/namespaces", "")
	for _, resource := range []string{"v1/configmaps", "v1/secrets", "v1/pods", "apps/v1/deployments", "events.k8s.io/v1/events"} {
		add(resource, other)
	}
	add("v1/secrets", c.ns)
	return strings.Join(all, "\n")
}

// TestHostileData: for any data, only granted objects are written. The test uses a real API server,
// which decides about the rest.
func TestHostileData(t *testing.T) {
	// Guarantee: kubernetes-allow
	k := start(t)
	other := k.Namespace(t)
	o := k.configMap("a")
	k.apply(deployment)
	k.apply(`{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {k: dg==}}`)
	k.Apply(t, other, `{apiVersion: v1, kind: ConfigMap, metadata: {name: victim}, data: {k: v}}`)
	k.Apply(t, other, `{apiVersion: v1, kind: Secret, metadata: {name: victim}, data: {k: dg==}}`)
	sink := k.open(`
allow:
  - {resource: v1/configmaps, namespaces: [$ns], verbs: [apply, create, merge, json, delete, event]}
  - {resource: v1/namespaces, namespaces: [$ns], verbs: [apply, create, merge, json, delete]}
  - {resource: apps/v1/deployments, subresources: [scale], namespaces: [$ns], verbs: [merge, json]}
`)
	const cm = `"apiVersion":"v1","kind":"ConfigMap"`
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	before := k.others(other)
	for name, data := range map[string]string{
		// Duplicate keys.
		"metadata twice":      `{"create":{` + cm + `,"metadata":{"name":"victim","namespace":"$other"},"metadata":{"name":"x","namespace":"$ns"}}}`,
		"metadata twice, new": `{"create":{` + cm + `,"metadata":{"name":"x","namespace":"$ns"},"metadata":{"name":"new","namespace":"$other"}}}`,
		"namespace twice":     `{"apply":{` + cm + `,"metadata":{"name":"victim","namespace":"$other","namespace":"$ns"},"data":{"k":"w"}}}`,
		"kind twice":          `{"create":{"apiVersion":"v1","kind":"Secret","kind":"ConfigMap","metadata":{"name":"x","namespace":"$ns"}}}`,
		"kind twice, last":    `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"$ns"},"kind":"Secret"}}`,
		"name twice":          `{"create":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$other-new","name":"$ns"}}}`,
		"target twice":        `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"x"},"target":{"resource":"v1/configmaps","namespace":"$other","name":"victim"}}`,
		"verb twice":          `{"delete":{},"delete":{},"target":{"resource":"v1/secrets","namespace":"$other","name":"victim"}}`,
		"another case":        `{"create":{` + cm + `,"Metadata":{"name":"victim","namespace":"$other"},"metadata":{"name":"x","namespace":"$ns"}}}`,
		"case of a name":      `{"create":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$ns","Name":"$other-new"}}}`,
		"YAML's merge key":    `{"apply":{` + cm + `,"metadata":{"name":"x","namespace":"$ns","<<":{"namespace":"$other","name":"victim"}}}}`,
		"YAML's alias":        `{"apply":{` + cm + `,"metadata":{"name":"x","namespace":"$ns"},"data":{"*a":"&a","k":"!!binary dg=="}}}`,
		// Path traversal.
		"name with a path":       `{"merge":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"../../$other/configmaps/victim"}}`,
		"escaped path":           `{"merge":{"data":{"k":"w"}},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"..%2f..%2f$other%2fconfigmaps%2fvictim"}}`,
		"query":                  `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"x?a=b#c"}}`,
		"line end":               `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"x\r\nHost: y\u0000"}}`,
		"no name":                `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":""}}`,
		"dots":                   `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"."}}`,
		"namespace with a path":  `{"delete":{},"target":{"resource":"v1/configmaps","namespace":"$ns/../$other","name":"victim"}}`,
		"resource with a path":   `{"delete":{},"target":{"resource":"v1/namespaces/$other/configmaps","name":"victim"}}`,
		"version with dots":      `{"merge":{},"target":{"resource":"apps/../deployments","namespace":"$ns","name":"web"},"subresource":"scale"}`,
		"apiVersion with a path": `{"create":{"apiVersion":"v1/namespaces/$other","kind":"Secret","metadata":{"name":"x","namespace":"$ns"}}}`,
		"apiVersion of dots":     `{"create":{"apiVersion":"..","kind":"ConfigMap","metadata":{"name":"x","namespace":"$other"}}}`,
		"apiVersion of a group":  `{"create":{"apiVersion":"apps/..","kind":"Secret","metadata":{"name":"x","namespace":"$ns"}}}`,
		"subresource as path":    `{"merge":{},"subresource":"scale/../../..","target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`,
		"subresource as name":    `{"merge":{},"target":{"resource":"v1/configmaps","namespace":"$ns","name":"a/status"}}`,
		// Namespaces, kinds and subresources that are not granted.
		"another namespace":           `{"apply":{` + cm + `,"metadata":{"name":"victim","namespace":"$other"},"data":{"k":"w"}}}`,
		"merge of a namespace":        `{"merge":{"metadata":{"namespace":"$other","name":"victim"},"data":{"k":"w"}}}`,
		"patch of a namespace":        `{"json":[{"op":"replace","path":"/metadata/namespace","value":"$other"},{"op":"replace","path":"/metadata/name","value":"victim"}]}`,
		"patch of a kind":             `{"json":[{"op":"replace","path":"/kind","value":"Secret"}]}`,
		"Namespace within another":    `{"delete":{},"target":{"resource":"v1/namespaces","namespace":"$ns","name":"$other"}}`,
		"Namespace of another":        `{"merge":{"metadata":{"labels":{"x":"y"}}},"target":{"resource":"v1/namespaces","namespace":"$other","name":"$ns"}}`,
		"no namespace":                `{"delete":{},"target":{"resource":"v1/configmaps","name":"victim"}}`,
		"capitals":                    `{"delete":{},"target":{"resource":"v1/ConfigMaps","namespace":"$other","name":"victim"}}`,
		"singular":                    `{"delete":{},"target":{"resource":"v1/configmap","namespace":"$ns","name":"a"}}`,
		"kind for a resource":         `{"create":{"apiVersion":"v1","kind":"configmaps","metadata":{"name":"x","namespace":"$ns"}}}`,
		"a List":                      `{"create":{"apiVersion":"v1","kind":"List","metadata":{"name":"x","namespace":"$ns"},"items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"$ns"}}]}}`,
		"a ConfigMapList":             `{"create":{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"name":"x","namespace":"$ns"},"items":[]}}`,
		"kind of a subresource":       `{"create":{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"x","namespace":"$ns"}}}`,
		"status":                      `{"merge":{"status":{"replicas":7}},"subresource":"status","target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`,
		"the object of a subresource": `{"merge":{"spec":{"replicas":7}},"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`,
		"finalize":                    `{"merge":{},"subresource":"finalize","target":{"resource":"v1/namespaces","name":"$ns"}}`,
		"generateName":                `{"create":{` + cm + `,"metadata":{"name":"x","generateName":"y","namespace":"$other"}}}`,
		"generateName alone":          `{"apply":{` + cm + `,"metadata":{"generateName":"y","namespace":"$other"}}}`,
		"Event about another":         `{"event":{"reason":"R"},"target":{"resource":"v1/configmaps","namespace":"$other","name":"victim"}}`,
		"Event about a Secret":        `{"event":{"reason":"R"},"target":{"resource":"v1/secrets","namespace":"$ns","name":"s"}}`,
		"Secret by uid":               `{"merge":{"data":{"k":"dw=="}},"target":{"resource":"v1/secrets","namespace":"$ns","name":"s","uid":"\",\"x\":\""}}`,
		"a good one, then a bad one":  `[{"merge":{"data":{"k":"w"}}},{"delete":{},"target":{"resource":"v1/secrets","namespace":"$ns","name":"s"}}]`,
		// Size and form.
		"deep":       `{"merge":{"data":` + deep + `}}`,
		"too deep":   `{"merge":{"data":` + deep[:len(deep)/2] + deep + strings.Repeat("}", 9000) + `}}`,
		"huge":       `{"merge":{"data":{"k":"` + strings.Repeat("x", 4<<20) + `"}}}`,
		"no JSON":    `{"delete":{}`,
		"two values": `{"delete":{}}{"delete":{}}`,
		"a number":   `7`,
		"nothing":    ``,
	} {
		t.Run(name, func(t *testing.T) {
			data = strings.ReplaceAll(data, "$other", other)
			err := write(t, sink, k.eventOf("v1/configmaps", o, data))
			if now := k.others(other); now != before {
				t.Errorf("it has written (%v): there is now\n%s\nbefore\n%s", err, now, before)
			}
			want := "rejected"
			// it deletes an object that does not exist
			if name == "query" || name == "line end" {
				want = "delivered"
			}
			if kind := kindOf(err); kind != want && name != "YAML's alias" {
				t.Errorf("it is %s: %v", kind, err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if now := k.get("v1/configmaps", "a"); now.GetResourceVersion() != o.GetResourceVersion() {
		t.Errorf("the object itself was written: %v", now.Object)
	}
	// A grant for the object of a delta is checked in the namespace of that object.
	victim := k.find("v1/configmaps", other, "victim")
	for _, data := range []string{`{"merge":{}}`, `{"delete":{}}`, `{"apply":{"data":{"k":"w"}}}`, `{"event":{"reason":"R"}}`} {
		if err := write(t, sink, k.eventOf("v1/configmaps", victim, data)); kindOf(err) != "rejected" || !strings.Contains(err.Error(), "in namespace") {
			t.Errorf("%s is %s: %v", data, kindOf(err), err)
		}
	}
	if k.others(other) != before {
		t.Error("the other namespace was written to")
	}
}

// TestText: texts arrive unchanged, even where JSON and YAML differ: the API server parses an apply
// as YAML.
func TestText(t *testing.T) {
	k := start(t)
	o := k.configMap("a")
	sink := k.open(all)
	const text = `"\ud83d\ude00 \u00e9 \/ \\ \" \n\t\u0001\u007f\u0085\u2028 : # - {x} & *a !!int 012 <<"`
	for i, data := range []string{`{"apply":{"data":{"x":%s}}}`, `{"merge":{"data":{"x":%s}}}`, `{"json":[{"op":"add","path":"/data/x","value":%s}]}`} {
		must.Report(t, write(t, sink, k.eventOf("v1/configmaps", o, fmt.Sprintf(data, text))))
		const want = "\U0001f600 é / \\ \" \n\t\u0001\u007f\u0085\u2028 : # - {x} & *a !!int 012 <<"
		got, _, _ := nested(k.get("v1/configmaps", "a"), "data", "x")
		if got != want {
			t.Errorf("%d: it is %q, want %q", i, got, want)
		}
		k.patch("v1/configmaps", k.ns, "a", `{"data":{"x":null}}`)
	}
}

func nested(o *unstructured.Unstructured, path ...string) (string, bool, error) {
	return unstructured.NestedString(o.Object, path...)
}

// TestEchoedToken: no error contains the token of a request, even if the server, or a proxy in its
// place, repeats it.
func TestEchoedToken(t *testing.T) {
	// Guarantee: answers-leak
	end := map[string]string{"no HTTP": "\r\n\r\n", "in a header": "\r\n\r\n", "in a length": "\r\n\r\n", "in a message": `"}`}
	for name, beginning := range map[string]string{
		"no HTTP": "", "in a header": "HTTP/1.1 200 OK\r\n", "in a length": "HTTP/1.1 200 OK\r\nContent-Length: ",
		"in a text": "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n",
		"in a message": "HTTP/1.1 503 Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" +
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"no backend for `,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = conn.Write([]byte(beginning + r.Header.Get("Authorization") + end[name]))
		}))
		defer s.Close()
		sink := open(t, "allow: [{resource: v1/configmaps, namespaces: [default], verbs: [delete]}]", env(t, &rest.Config{Host: s.URL, BearerToken: "s3cr3t"}))
		e := plugintest.Events(t)[0]
		e.Data = []byte(`{"delete":{},"target":{"resource":"v1/configmaps","namespace":"default","name":"a"}}`)
		err := write(t, sink, e)
		if err == nil || plugins.ClassOf(err) == plugins.Rejected || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestHostileHeaders: a sink with a kubeconfig of its own does not read a header of 1 MiB, and the
// API server is unavailable.
func TestHostileHeaders(t *testing.T) {
	// Guarantee: headers-bounded
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", strings.Repeat("x", 1<<20))
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1"}`))
	}))
	t.Cleanup(server.Close)
	file := sinktest.File(t, "kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: k, cluster: {server: %q}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: k, user: u}}]
`, server.URL))
	sink := open(t, fmt.Sprintf("kubeconfig: %q\nallow: [{resource: v1/configmaps, verbs: [merge]}]\n", file), plugins.SinkEnv{Env: plugins.Env{Name: "k"}})
	err := write(t, sink, event.Event{
		ID: "1", Data: []byte(`{"merge":{"data":{"k":"v"}},"target":{"resource":"v1/configmaps","namespace":"n","name":"x"}}`),
	})
	if err == nil || plugins.ClassOf(err) == plugins.Rejected || !strings.Contains(err.Error(), "headers of the response are too large") {
		t.Errorf("error %v", err)
	}
}
