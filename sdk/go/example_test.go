package deltarouter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

// This handler reports the node of a pod when the pod is scheduled. A program registers it with
//
//	var _ = deltarouter.Handle(landed)
func ExampleHandle() {
	landed := func(d deltarouter.Delta) ([]deltarouter.Event, error) {
		var pod struct {
			Spec struct {
				NodeName string `json:"nodeName"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(d.Object, &pod); err != nil {
			return nil, err
		}
		if pod.Spec.NodeName == "" {
			return nil, deltarouter.Retry(errors.New("not scheduled yet"), time.Second)
		}
		return []deltarouter.Event{{Data: map[string]string{"pod": d.Name, "node": pod.Spec.NodeName}}}, nil
	}
	_ = deltarouter.Handle(landed)

	events, err := landed(deltarouter.Delta{
		Op: deltarouter.Updated, Source: "pods", Namespace: "default", Name: "web-0",
		Object: []byte(`{"spec": {"nodeName": "n1"}}`),
	})
	fmt.Println(events[0].Data, err)
	// Output: map[node:n1 pod:web-0] <nil>
}

// A handler that needs its configuration is made by a setup function.
func ExampleSetup() {
	setup := func() (deltarouter.Handler, error) {
		config := struct {
			Greeting string `json:"greeting"`
		}{Greeting: "hello"}
		if err := deltarouter.Config(&config); err != nil {
			return nil, err
		}
		return func(d deltarouter.Delta) ([]deltarouter.Event, error) {
			return []deltarouter.Event{{Data: config.Greeting + " " + d.Name}}, nil
		}, nil
	}
	_ = deltarouter.Setup(setup)

	deltarouter.SetConfig([]byte(`{"greeting": "welcome"}`)) // the router does this
	handle, err := setup()
	if err != nil {
		fmt.Println(err)
		return
	}
	events, _ := handle(deltarouter.Delta{Name: "web-0"})
	fmt.Println(events[0].Data)
	// Output: welcome web-0
}

// A handler retries a delta whose cause goes away by itself.
func ExampleRetry() {
	err := deltarouter.Retry(errors.New("not scheduled yet"), 5*time.Second)
	fmt.Println(err, deltarouter.IsRetry(err))
	// Output: not scheduled yet true
}

// Config rejects keys that the handler does not know, so a mistyped key ends the start.
func ExampleConfig() {
	deltarouter.SetConfig([]byte(`{"threshhold": 5}`)) // the router does this
	defer deltarouter.SetConfig(nil)
	config := struct {
		Threshold int `json:"threshold"`
	}{Threshold: 3}
	fmt.Println(deltarouter.Config(&config))
	// Output: config: json: unknown field "threshhold"
}

// This handler reports the number of pods of a node. Its configuration in the router has
// `allow: {lookup: [pods.byNode]}`. In a test deltaroutertest.Host grants the look-up.
func ExampleLookup() {
	count := func(d deltarouter.Delta) ([]deltarouter.Event, error) {
		pods, err := deltarouter.Lookup("pods.byNode", d.Name)
		if err != nil {
			return nil, err
		}
		return []deltarouter.Event{{Data: map[string]any{"node": d.Name, "pods": len(pods)}}}, nil
	}
	_ = deltarouter.Handle(count)

	_, err := count(deltarouter.Delta{Name: "n1"})
	fmt.Println(errors.Is(err, deltarouter.ErrDenied))
	// Output: true
}

// This handler reports each object once a day. Its configuration in the router has
// `allow: {kv: true}`. In a test deltaroutertest.Host grants the store.
func ExampleKVSet() {
	daily := func(d deltarouter.Delta) ([]deltarouter.Event, error) {
		_, reported, err := deltarouter.KVGet(d.Name)
		if err != nil || reported {
			return nil, err
		}
		if err := deltarouter.KVSet(d.Name, []byte("1"), 24*time.Hour); err != nil {
			return nil, err
		}
		return []deltarouter.Event{{Data: d.Name}}, nil
	}
	_ = deltarouter.Handle(daily)

	_, err := daily(deltarouter.Delta{Name: "web-0"})
	fmt.Println(errors.Is(err, deltarouter.ErrDenied))
	// Output: true
}
