// Package parse is the work of the guests that are compared: encoding/json into a struct, as
// handlers in Go do it.
package parse

import (
	"encoding/json"
	"runtime"
)

type pod struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		ContainerStatuses []struct {
			Name         string `json:"name"`
			RestartCount int    `json:"restartCount"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

var calls int

// Restarts returns how often the containers of a pod were restarted.
func Restarts(text []byte) int32 {
	if calls++; calls%64 == 0 {
		runtime.Gosched() // an export does not let the collector run
	}
	var p pod
	if err := json.Unmarshal(text, &p); err != nil {
		return -1
	}
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return int32(n)
}
