// Command restart-alert is a handler: it emits an event when a container of a pod was restarted.
// See README.md.
package main

import (
	"encoding/json"
	"fmt"

	deltarouter "github.com/deltarouter/deltarouter/sdk/go"
)

var _ = deltarouter.Setup(setup)

// main is never called: the router uses the module as a library.
func main() {}

// eventType is the type of the events.
const eventType = "deltarouter.restart-alert"

// alerter is the handler and its configuration.
type alerter struct {
	// Threshold is the number of restarts from which on a container is reported.
	Threshold int `json:"threshold"`
}

func setup() (deltarouter.Handler, error) {
	a := &alerter{Threshold: 1}
	if err := deltarouter.Config(a); err != nil {
		return nil, err
	}
	if a.Threshold < 1 {
		return nil, fmt.Errorf("threshold is %d, must be at least 1", a.Threshold)
	}
	return a.handle, nil
}

// pod is the used part of a pod. encoding/json skips the rest.
type pod struct {
	Spec   spec   `json:"spec"`
	Status status `json:"status"`
}

type spec struct {
	NodeName string `json:"nodeName"`
}

type status struct {
	InitContainerStatuses []container `json:"initContainerStatuses"`
	ContainerStatuses     []container `json:"containerStatuses"`
}

func (p *pod) containers() []container {
	return append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...)
}

type container struct {
	Name         string `json:"name"`
	RestartCount int    `json:"restartCount"`
	LastState    struct {
		Terminated struct {
			Reason string `json:"reason"`
		} `json:"terminated"`
	} `json:"lastState"`
	State struct {
		Waiting struct {
			Reason string `json:"reason"`
		} `json:"waiting"`
	} `json:"state"`
}

// reason returns the reason of the restart, if the kubelet reports one.
func (c *container) reason() string {
	if c.LastState.Terminated.Reason != "" {
		return c.LastState.Terminated.Reason
	}
	return c.State.Waiting.Reason
}

// alert is the data of an event.
type alert struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Restarts  int    `json:"restarts"`
	Reason    string `json:"reason,omitempty"`
	Node      string `json:"node,omitempty"`
}

// handle compares the two states of an updated pod. A container that the old state does not have
// had no restarts.
func (a *alerter) handle(d deltarouter.Delta) ([]deltarouter.Event, error) {
	if d.Op != deltarouter.Updated || len(d.OldObject) == 0 {
		return nil, nil
	}
	var before, after pod
	if err := json.Unmarshal(d.OldObject, &before); err != nil {
		return nil, fmt.Errorf("old pod: %w", err)
	}
	if err := json.Unmarshal(d.Object, &after); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	restarts := map[string]int{}
	for _, c := range before.containers() {
		restarts[c.Name] = c.RestartCount
	}
	var events []deltarouter.Event
	for _, c := range after.containers() {
		if c.RestartCount <= restarts[c.Name] || c.RestartCount < a.Threshold {
			continue
		}
		events = append(events, deltarouter.Event{Type: eventType, Data: alert{
			Namespace: d.Namespace, Pod: d.Name, Container: c.Name,
			Restarts: c.RestartCount, Reason: c.reason(), Node: after.Spec.NodeName,
		}})
	}
	return events, nil
}
