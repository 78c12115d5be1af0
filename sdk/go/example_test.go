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
