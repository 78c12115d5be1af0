// Command pod unmarshals pods into corev1.Pod, like the handlers of controller authors. The tests
// of the host build it.
package main

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Handle(handle)

func main() {}

func handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(d.Object, &pod); err != nil {
		return nil, err
	}
	return []deltarouter.Event{{Data: map[string]any{
		"phase": string(pod.Status.Phase), "containers": len(pod.Spec.Containers), "cpu": pod.Spec.Containers[0].Resources.Requests.Cpu().String(),
	}}}, nil
}
