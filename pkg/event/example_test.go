package event_test

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// parsePod returns a pod of the cluster prod.
func parsePod(json string) *event.Object {
	pods := &event.Resource{Cluster: "prod", Kind: "Pod"}
	pods.Version, pods.Resource = "v1", "pods"
	pod, err := event.ParseObject(pods, json)
	if err != nil {
		panic(err)
	}
	return pod
}

func ExampleParseObject() {
	pods := &event.Resource{Cluster: "prod", Kind: "Pod"}
	pods.Version, pods.Resource = "v1", "pods"
	pod, err := event.ParseObject(pods, `{
		"metadata": {"namespace": "shop", "name": "web-0", "uid": "8d3f", "resourceVersion": "42", "labels": {"app": "web"}},
		"spec": {"nodeName": "n1"}
	}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Resource(), pod.Key(), pod.Labels())
	fmt.Println(pod.Raw().Path("spec", "nodeName").Str())

	_, err = event.ParseObject(pods, `{"metadata": {"namespace": "shop"}}`)
	fmt.Println(err)
	// Output:
	// v1/pods shop/web-0 map[app:web]
	// n1
	// not a Kubernetes object: metadata.name is missing or not a string
}

// The ID of an event depends on its delta, its route and its number only. So a repeated delivery has
// the same ID, and a receiver can drop it.
func ExampleNew() {
	pod := parsePod(`{"metadata": {"namespace": "shop", "name": "web-0", "uid": "8d3f", "resourceVersion": "42"}}`)
	delta := &event.Delta{Source: "pods", Op: event.Added, New: pod, Seen: time.Now()}
	first := event.New(delta, "audit", 0, []byte(`{"pod":"web-0"}`))
	again := event.New(delta, "audit", 0, []byte(`{"pod":"web-0"}`))
	other := event.New(delta, "alerts", 0, []byte(`{"pod":"web-0"}`))

	fmt.Println(first.Type, first.Source, first.Subject)
	fmt.Println(first.ID == again.ID, first.ID == other.ID)
	// Output:
	// io.deltarouter.added /clusters/prod/sources/pods shop/web-0
	// true false
}

// A route without a handler delivers the delta itself.
func ExamplePayload() {
	before := parsePod(`{"metadata":{"name":"web-0"},"status":{"phase":"Pending"}}`)
	after := parsePod(`{"metadata":{"name":"web-0"},"status":{"phase":"Running"}}`)
	fmt.Printf("%s\n", event.Payload(&event.Delta{Op: event.Added, New: before, Initial: true}))
	fmt.Printf("%s\n", event.Payload(&event.Delta{Op: event.Updated, Old: before, New: after}))
	// Output:
	// {"op":"added","object":{"metadata":{"name":"web-0"},"status":{"phase":"Pending"}},"initial":true}
	// {"op":"updated","object":{"metadata":{"name":"web-0"},"status":{"phase":"Running"}},"oldObject":{"metadata":{"name":"web-0"},"status":{"phase":"Pending"}}}
}

func ExampleEvent_AppendJSON() {
	e := event.Event{
		ID: "1", Type: "restarted", Source: "/clusters/prod/sources/pods", Subject: "shop/web-0",
		Time: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Route: "restarts", Data: []byte(`{"restarts": 3}`),
	}
	fmt.Printf("%s\n", e.AppendJSON(nil))
	// Output: {"specversion":"1.0","id":"1","source":"/clusters/prod/sources/pods","type":"restarted","subject":"shop/web-0","time":"2026-11-20T09:00:00Z","route":"restarts","datacontenttype":"application/json","data":{"restarts": 3}}
}

// A sink of a system with ordered partitions uses the order key as the key of its messages.
func ExampleEvent_OrderKey() {
	pod := parsePod(`{"metadata": {"namespace": "shop", "name": "web-0"}, "spec": {"nodeName": "n1"}}`)
	e := event.New(&event.Delta{Source: "pods", Op: event.Added, New: pod}, "audit", 0, nil)
	fmt.Println(e.OrderKey())
	e.Key = "n1" // the route has `key: object.spec.nodeName`
	fmt.Println(e.OrderKey())
	// Output:
	// pods/shop/web-0
	// n1
}

// A value is read in place: only the fields that are asked for are decoded.
func ExampleValue() {
	pod := parsePod(`{"metadata":{"name":"web-0"},"spec":{"containers":[{"name":"app","image":"web:7"},{"name":"log"}]}}`)
	for container := range pod.Raw().Path("spec", "containers").Elems() {
		fmt.Println(container.Get("name").Str(), container.Get("image").Kind() == event.AbsentValue)
	}
	// Output:
	// app false
	// log true
}
