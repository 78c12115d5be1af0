// Package parse is the work of the compared guests: encoding/json into a struct, which is typical
// of handlers in Go.
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

// Restarts returns the number of restarts of a pod's containers.
func Restarts(text []byte) int32 {
	if calls++; calls%64 == 0 {
		runtime.Gosched() // an export does not run the collector by itself
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
