package kubernetes_test

import (
	"testing"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

const (
	deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}`
	pod = `{apiVersion: v1, kind: Pod, metadata: {name: web-0, labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}`
)

// TestVerbs: each verb has its effect at the API server, by default on the object of the delta. A
// repetition does no harm.
func TestVerbs(t *testing.T) {
	for name, c := range map[string]struct {
		of, name, data string // the object of the delta
		resource, at   string // the object to compare
		path           []string
		want           string
	}{
		"apply": {
			"v1/configmaps", "a", `{"apply":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"$ns"},"data":{"x":"y"}}}`,
			"v1/configmaps", "b",
			[]string{"data"},
			`{"x":"y"}`,
		},
		"apply to what the delta is of": {
			"v1/configmaps", "a", `{"apply":{"data":{"x":"y"},"metadata":{"labels":{"l":"1"}}}}`, "v1/configmaps", "a", []string{"data"}, `{"k":"v","x":"y"}`,
		},
		"apply status": {
			"v1/pods", "web-0", `{"apply":{"status":{"message":"m"}},"subresource":"status"}`, "v1/pods", "web-0", []string{"status", "message"}, `"m"`,
		},
		"create": {
			"v1/configmaps", "a", `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"$ns"},"data":{"x":"y"}}}`,
			"v1/configmaps", "b",
			[]string{"data"},
			`{"x":"y"}`,
		},
		"create what is there": {
			"v1/configmaps", "a", `{"create":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"$ns"},"data":{"x":"y"}}}`,
			"v1/configmaps", "a",
			[]string{"data"},
			`{"k":"v"}`,
		},
		"merge":          {"v1/configmaps", "a", `{"merge":{"data":{"k":null,"n":"1"}}}`, "v1/configmaps", "a", []string{"data"}, `{"n":"1"}`},
		"merge metadata": {"v1/configmaps", "a", `{"merge":{"metadata":{"labels":{"l":"1"}}}}`, "v1/configmaps", "a", []string{"metadata", "labels"}, `{"l":"1"}`},
		"merge another": {
			"v1/configmaps", "a", `{"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"},"merge":{"spec":{"paused":true}}}`,
			"apps/v1/deployments", "web",
			[]string{"spec", "paused"},
			"true",
		},
		"merge scale":  {"apps/v1/deployments", "web", `{"merge":{"spec":{"replicas":5}},"subresource":"scale"}`, "apps/v1/deployments", "web", []string{"spec", "replicas"}, "5"},
		"merge status": {"v1/pods", "web-0", `{"merge":{"status":{"message":"m"}},"subresource":"status"}`, "v1/pods", "web-0", []string{"status", "message"}, `"m"`},
		"json":         {"v1/configmaps", "a", `{"json":[{"op":"add","path":"/data/n","value":"1"},{"op":"remove","path":"/data/k"}]}`, "v1/configmaps", "a", []string{"data"}, `{"n":"1"}`},
		"json scale": {
			"apps/v1/deployments", "web", `{"json":[{"op":"replace","path":"/spec/replicas","value":3}],"subresource":"scale"}`,
			"apps/v1/deployments", "web",
			[]string{"spec", "replicas"},
			"3",
		},
		"delete":         {"v1/configmaps", "a", `{"delete":{}}`, "v1/configmaps", "a", nil, "no object"},
		"delete another": {"v1/configmaps", "a", `{"delete":{"propagation":"orphan"},"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`, "apps/v1/deployments", "web", []string{"metadata", "finalizers"}, `["orphan"]`},
		"delete a pod":   {"v1/pods", "web-0", `{"delete":{"gracePeriodSeconds":0}}`, "v1/pods", "web-0", nil, "no object"},
		"evict":          {"v1/pods", "web-0", `{"evict":{"gracePeriodSeconds":0}}`, "v1/pods", "web-0", nil, "no object"},
		"label a namespace": {
			"v1/configmaps", "a", `{"merge":{"metadata":{"labels":{"seen":"yes"}}},"target":{"resource":"v1/namespaces","name":"$ns"}}`,
			"v1/namespaces", "$ns",
			[]string{"metadata", "labels", "seen"},
			`"yes"`,
		},
		"a list": {
			"v1/configmaps", "a", `[{"merge":{"data":{"n":"1"}}},{"merge":{"data":{"m":"2"}}},{"delete":{},"target":{"resource":"v1/pods","namespace":"$ns","name":"web-0"}}]`,
			"v1/configmaps", "a",
			[]string{"data"},
			`{"k":"v","m":"2","n":"1"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			k.configMap("a")
			k.apply(deployment)
			k.apply(pod)
			sink := k.open(all)
			e := k.eventOf(c.of, k.get(c.of, c.name), c.data)
			for range 2 {
				err := write(t, sink, e)
				if name == "json" && err != nil && kindOf(err) == "rejected" {
					continue // the object was removed
				}
				if err != nil {
					t.Fatal(kindOf(err), err)
				}
				at, namespace := c.at, k.ns
				if at == "$ns" {
					at, namespace = k.ns, ""
				}
				if got := field(k.find(c.resource, namespace, at), c.path...); got != c.want {
					t.Errorf("%v of %s is %s, want %s", c.path, at, got, c.want)
				}
			}
		})
	}
}

// TestEvent: repeated events create one Event.
func TestEvent(t *testing.T) {
	k := start(t)
	o := k.configMap("a")
	k.apply(deployment)
	sink := k.open(all + "  - {resource: apps/v1/deployments, verbs: [event]}\n")
	own := k.eventOf("v1/configmaps", o, `{"event":{"type":"Warning","reason":"Changed","note":"n","action":"Look"}}`)
	other := k.eventOf("v1/configmaps", o, `{"event":{"reason":"Scaled"},"target":{"resource":"apps/v1/deployments","namespace":"$ns","name":"web"}}`)
	other.ID = "other"
	for range 3 {
		for _, e := range []event.Event{own, other} {
			must.Succeed(t, write(t, sink, e))
		}
	}
	list := k.list("events.k8s.io/v1/events")
	if len(list) != 2 {
		t.Fatalf("there are %d Events", len(list))
	}
	for i := range list {
		e := &list[i]
		want := map[string]string{
			"reason": `"Changed"`, "type": `"Warning"`, "note": `"n"`, "action": `"Look"`, "eventTime": `"2026-01-02T03:04:05.000678Z"`,
			"reportingController": `"deltarouter"`, "reportingInstance": `"k"`,
		}
		kind, name := `"ConfigMap"`, `"a"`
		if field(e, "reason") == `"Scaled"` {
			want, kind, name = map[string]string{"type": `"Normal"`, "action": `"Scaled"`}, `"Deployment"`, `"web"`
		} else if field(e, "regarding", "uid") != `"`+string(o.GetUID())+`"` {
			t.Error("it is about another uid")
		}
		for key, value := range want {
			if got := field(e, key); got != value {
				t.Errorf("%s is %s, want %s", key, got, value)
			}
		}
		if field(e, "regarding", "kind") != kind || field(e, "regarding", "name") != name {
			t.Errorf("regarding is %s", field(e, "regarding"))
		}
	}
}
