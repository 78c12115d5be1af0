package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/sdk/process"
)

// image returns the first image of a pod.
func image(_ context.Context, d process.Delta) ([]process.Event, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(d.Object, &pod); err != nil {
		return nil, err
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, process.ErrDrop
	}
	return []process.Event{{Data: map[string]string{"pod": d.Name, "image": pod.Spec.Containers[0].Image}}}, nil
}

// The main function of this plugin is
//
//	process.Serve(process.Plugin{Name: "images", Version: "1.0.0", Setup: process.Handle(image)})
//
// A handler is a function, so a test can call it.
func ExampleHandle() {
	handle, err := process.Handle(image)(context.Background(), &process.Router{})
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := handle(context.Background(), process.Delta{
		Op: process.Added, Source: "pods", Namespace: "shop", Name: "web-0",
		Object: []byte(`{"spec": {"containers": [{"image": "web:2"}]}}`),
	})
	fmt.Println(events[0].Data, err)
	_, err = handle(context.Background(), process.Delta{Name: "web-1", Object: []byte(`{}`)})
	fmt.Println(errors.Is(err, process.ErrDrop))
	// Output:
	// map[image:web:2 pod:web-0] <nil>
	// true
}

// A handler retries a delta whose cause goes away by itself. The router waits at least a minute here.
func ExampleRetry() {
	fmt.Println(process.Retry(errors.New("the ticket system is down"), time.Minute))
	// Output: the ticket system is down
}

// The setup of a plugin decodes its configuration into a struct with defaults.
func ExampleRouter_Config() {
	setup := func(_ context.Context, r *process.Router) (process.Handler, error) {
		config := struct {
			Greeting string `json:"greeting"`
		}{Greeting: "hello"}
		if err := r.Config(&config); err != nil {
			return nil, err
		}
		return func(_ context.Context, d process.Delta) ([]process.Event, error) {
			return []process.Event{{Data: config.Greeting + " " + d.Name}}, nil
		}, nil
	}
	handle, err := setup(context.Background(), &process.Router{}) // Serve passes the configured one
	if err != nil {
		fmt.Println(err)
		return
	}
	events, _ := handle(context.Background(), process.Delta{Name: "web-0"})
	fmt.Println(events[0].Data)
	// Output: hello web-0
}
